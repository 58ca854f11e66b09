"""The prompt of ``rocketlens sql``: queries that end with a semicolon, one after the other."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rocketlens.errors import RocketLensError
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import note

_PROMPT: Final = "messages> "
_MORE: Final = "     ...> "
_ENDS: Final = frozenset({".exit", ".quit", "exit", "quit"})
_HELP: Final = "a SELECT from messages, which ends with ; (.quit or Ctrl-D ends)"


def run_prompt(run_query: Callable[[str], object]) -> ExitCode:
    """Run each query that is typed; an error is printed, and the next one can be typed.

    Ctrl-C discards what was typed, or ends the query that runs.
    """
    with suppress(ImportError):
        # Lines can be edited, and called up again.
        import readline  # noqa: F401 - importing it is all that is needed
    note(_HELP)
    typed = ""
    while True:
        try:
            line = input(_MORE if typed else _PROMPT)
            if not typed and line.strip().rstrip(";").lower() in _ENDS:
                return ExitCode.OK
            typed = f"{typed}{line}\n" if typed or line.strip() else ""
            if not typed.rstrip().endswith(";"):
                continue
            query, typed = typed.rstrip().rstrip(";"), ""
            if query.strip():
                run_query(query)
        except EOFError:
            print()
            return ExitCode.OK
        except KeyboardInterrupt:
            typed = ""
            print()
        except RocketLensError as error:
            note(str(error))
