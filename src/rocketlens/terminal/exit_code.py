"""Exit codes: what a program that ran ``rocketlens`` learns from it.

=====  ============  ==============================================================================
code   name          meaning
=====  ============  ==============================================================================
0      OK            found; done; agrees; healthy
1      NO            not found, and everything was searched; differs; not healthy
2      FAILED        wrong usage, or an error
3      INCOMPLETE    something could not be searched, whether or not something was found
130    INTERRUPTED   ended by Ctrl-C
=====  ============  ==============================================================================
"""

from enum import IntEnum
from typing import Final

SEARCH_EXIT_CODES: Final = (
    "exit codes: 0 found, 1 not found and everything was searched, 2 wrong usage or an error,\n"
    "3 incomplete: something could not be searched, whether or not something was found."
)
"""Help of the commands that search."""


class ExitCode(IntEnum):
    """The result of a command."""

    OK = 0
    NO = 1
    FAILED = 2
    INCOMPLETE = 3
    INTERRUPTED = 130
