"""The pip command that installs an extra from where this package was installed."""

from functools import cache
from pathlib import Path
from typing import Any


def install_command(extra: str) -> str:
    return f"pip install {_requirement(extra)}"


def reinstall_command() -> str:
    return f"pip install --force-reinstall {_requirement('')}"


@cache
def _requirement(extra: str) -> str:
    # Late imports, also below: only hints need them.
    import shlex
    from urllib.parse import unquote, urlsplit

    chosen = f"[{extra}]" if extra else ""
    origin = _origin()
    url = str(origin.get("url", ""))
    directory = Path(unquote(urlsplit(url).path))
    if "dir_info" in origin and (directory / "pyproject.toml").is_file():
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"{editable}{shlex.quote(f'{directory}{chosen}')}"
    if "archive_info" in origin or "vcs_info" in origin:
        vcs = origin.get("vcs_info", {}).get("vcs")
        return shlex.quote(f"rocketlens{chosen} @ {f'{vcs}+' if vcs else ''}{url}")
    return shlex.quote(f"rocketlens{chosen}")


def _origin() -> dict[str, Any]:
    """Return the source of this installation (PEP 610); empty for an index."""
    import json
    from importlib import metadata

    try:
        text = metadata.distribution("rocketlens").read_text("direct_url.json")
        origin = json.loads(text or "{}")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return origin if isinstance(origin, dict) else {}
