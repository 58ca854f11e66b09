"""Adds to a wheel, while it is built, the compiled kernels and the manual pages."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuiltParts(BuildHookInterface):
    """Builds what a checkout lacks, from the sources at hand, whatever is installed."""

    def dependencies(self) -> list[str]:
        """Ask for a C compiler from the package index where the machine has none."""
        kernels = self._import("kernels")
        return [] if kernels.compiler() else [kernels.ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the kernels, beside their sources for an editable installation; write the pages."""
        root = Path(self.root)
        kernels = self._import("kernels")
        if version == "editable":
            kernels.build(root / "src", root / "src")
            return
        built = root / "build" / "kernels"
        for path in kernels.build(root / "src", built):
            build_data["force_include"][str(path)] = str(path.relative_to(built))
        build_data["pure_python"] = False
        build_data["tag"] = kernels.wheel_tag()
        for path in self._import("man_pages").write(root / "build" / "man"):
            build_data["shared_data"][str(path)] = f"share/man/man1/{path.name}"

    def _import(self, name: str) -> Any:
        root = Path(self.root)
        for directory in (str(root / "packaging"), str(root / "src")):
            if directory not in sys.path:
                sys.path.insert(0, directory)
        return import_module(name)
