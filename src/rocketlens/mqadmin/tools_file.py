"""``$ROCKETMQ_HOME/conf/tools.yml``: the access key of RocketMQ's own tool.

::

    accessKey: rocketmq2
    secretKey: "12345678"

`run` imports this when a command connects: help must not cost what reads files. Source:
``AclUtils.getAclRPCHook``.
"""

import os
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.net.secret_file import opened_regular
from rocketlens.terminal.contexts import Context, check_owner, warn_of_readers

_HOME_VARIABLE: Final = "ROCKETMQ_HOME"


def tools_file_context() -> Context:
    """Return the keys of the file; empty if the file or the keys are missing.

    :raises BadInput: when it is not YAML, or a key is not a text.
    :raises OSError: when it cannot be read.
    """
    home = os.environ.get(_HOME_VARIABLE)
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
    access_key, secret_key = _keys_of(text, path)
    if not (access_key.strip() and secret_key.strip()):
        return Context()
    warn_of_readers(mode, path)
    return Context(access_key=access_key, secret_key=secret_key)


def _keys_of(text: str, path: Path) -> list[str]:
    """Return access key and secret key of a file; empty if it has none."""
    import yaml

    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Not the line itself, nor the rest of the error: they may hold the secret.
        mark = getattr(error, "problem_mark", None)
        where = f"{path}: line {mark.line + 1}" if mark else f"{path}"
        raise BadInput(f"{where} is not supported: write NAME: VALUE") from None
    keys = []
    for name in ("accessKey", "secretKey"):
        value = values.get(name) if isinstance(values, dict) else None
        if not isinstance(value, str | int | None) or isinstance(value, bool):
            raise BadInput(f"{path}: {name} is not text: write it in quotes")
        keys.append("" if value is None else str(value))
    return keys
