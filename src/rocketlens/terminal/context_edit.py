"""Changes of the user's file of contexts, which keep its comments and everything else in it.

The file is TOML that people write. So it is changed as text, by lines; what that gives is read
again, and refused if it is not what was wanted.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rocketlens.errors import BadInput

_DEFAULT: Final = "default_context"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TABLE: Final = re.compile(r"\s*\[")
_DEFAULT_LINE: Final = re.compile(rf"\s*{_DEFAULT}\s*=")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")


def check_context_name(name: str) -> str:
    """Return the name of a new context.

    :raises BadInput: if it has other characters than letters, digits, ``_`` and ``-``.
    """
    if _NAME.fullmatch(name) is None:
        raise BadInput("the name of a context has 1 to 64 letters, digits, _ and -")
    return name


def with_context(text: str, name: str, values: Mapping[str, str | bool]) -> str:
    """Return the text of a file with one more context.

    :raises BadInput: if it has one of that name, or a value has a control character.
    """
    before = _parsed(text)
    if name in before["contexts"]:
        raise BadInput(f"there is a context {name} already: rocketlens context remove {name}")
    lines = [f"[contexts.{check_context_name(name)}]"]
    lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
    head = f"{text.rstrip()}\n\n" if text.strip() else ""
    after = head + "\n".join(lines) + "\n"
    contexts = {**before["contexts"], name: dict(values)}
    return _checked(after, {**before, "contexts": contexts})


def with_default(text: str, name: str) -> str:
    """Return the text of a file with another default context.

    :raises BadInput: if it has no context of that name.
    """
    before = _parsed(text)
    if name not in before["contexts"]:
        raise BadInput("there is no context of that name (rocketlens context list)")
    lines = _without_default(text)
    return _checked(f"{_DEFAULT} = {_toml(name)}\n" + "".join(lines), {**before, _DEFAULT: name})


def without_context(text: str, name: str) -> str:
    """Return the text of a file without a context; if it is the default one, without a default.

    :raises BadInput: if there is none, or it is not written as a table of its own.
    """
    before = _parsed(text)
    if name not in before["contexts"]:
        raise BadInput("there is no context of that name (rocketlens context list)")
    after = {**before, "contexts": {k: v for k, v in before["contexts"].items() if k != name}}
    lines = text.splitlines(keepends=True)
    if before.get(_DEFAULT) == name:
        del after[_DEFAULT]
        lines = _without_default(text)
    header = re.compile(rf"\s*\[\s*contexts\s*\.\s*[\"']?{re.escape(name)}[\"']?\s*\]")
    kept: list[str] = []
    is_removed = False
    for line in lines:
        if _TABLE.match(line):
            is_removed = header.match(line) is not None
        if not is_removed:
            kept.append(line)
    return _checked("".join(kept), after)


def write_contexts(path: Path, text: str) -> None:
    """Replace the file in one step; a new one is for its user alone.

    :raises OSError: if it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = path.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(text)
        partial.chmod(mode)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _without_default(text: str) -> list[str]:
    """Return the lines of a file without the one of its default context, which is before tables."""
    kept: list[str] = []
    is_top = True
    for line in text.splitlines(keepends=True):
        is_top = is_top and not _TABLE.match(line)
        if not (is_top and _DEFAULT_LINE.match(line)):
            kept.append(line)
    return kept


def _toml(value: object) -> str:
    """Return a text or a switch as TOML has it, which is as JSON does but for control characters.

    :raises BadInput: for a control character.
    """
    if isinstance(value, str) and _CONTROLS.search(value):
        raise BadInput("a value has a control character in it")
    return json.dumps(value, ensure_ascii=False)


def _parsed(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return {"contexts": {}, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError:
        raise BadInput("the file of contexts is not TOML: mend it first") from None


def _checked(text: str, expected: Mapping[str, Any]) -> str:
    """Return a text that has what is expected.

    :raises BadInput: if it has not: the file is written in another way than is understood.
    """
    if _parsed(text) != expected:
        raise BadInput("the file of contexts is written in a way that only its author can change")
    return text
