"""Adds the manual pages to a wheel while it is built."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualPages(BuildHookInterface):
    """Writes the pages of the sources that are built, whatever is installed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages and name each for ``share/man``; not for an editable installation."""
        if version == "editable":
            return
        root = Path(self.root)
        sys.path[:0] = [str(root / "src"), str(root / "packaging")]
        try:
            import man_pages

            for path in man_pages.write(root / "build" / "man"):
                build_data["shared_data"][str(path)] = f"share/man/man1/{path.name}"
        finally:
            del sys.path[:2]
