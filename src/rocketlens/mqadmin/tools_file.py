"""``$ROCKETMQ_HOME/conf/tools.yml``: the access key of RocketMQ's own tool.

::

    accessKey: rocketmq2
    secretKey: "12345678"

Reads the part of YAML that such a file needs: a scalar on the line of its key, quoted or not, and
comments. Source: ``AclUtils.getAclRPCHook``.
"""

import os
import re
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.net.secret_file import opened_regular
from rocketlens.terminal.contexts import Context, check_owner, warn_of_readers

HOME_VARIABLE: Final = "ROCKETMQ_HOME"
_LINE: Final = re.compile(
    r"""(?P<name>accessKey|secretKey)\s*:(?=\s|$)\s*
        (?: "(?P<double>[^"\\]*)" | '(?P<single>(?:[^']|'')*)'
          | (?P<plain>[^"'\s\#&*!|>%@`](?:[^\#]|(?<=\S)\#)*?) )?
        \s*(?:(?<=\s)\#.*)?$""",
    re.VERBOSE,
)


def tools_file_context() -> Context:
    """Return the keys of the file; empty if the file or the keys are missing.

    :raises BadInput: when a value is written in a way that is not supported.
    :raises OSError: when it cannot be read.
    """
    home = os.environ.get(HOME_VARIABLE)
    if not home:
        return Context()
    path = Path(home, "conf", "tools.yml")
    try:
        with opened_regular(path, f"{path}") as file:
            check_owner(file, path)
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(limits.MAX_CONTEXTS_BYTES).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return Context()
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith(("accessKey", "secretKey")):
            continue
        found = _LINE.match(line)
        if found is None:
            # Not the line itself: it may hold the secret.
            raise BadInput(f"{path}: line {number} is not supported: write NAME: VALUE")
        value = found["double"] or (found["single"] or "").replace("''", "'") or found["plain"]
        values[found["name"]] = value or ""
    if not (values.get("accessKey", "").strip() and values.get("secretKey", "").strip()):
        return Context()
    warn_of_readers(mode, path)
    return Context(access_key=values["accessKey"], secret_key=values["secretKey"])
