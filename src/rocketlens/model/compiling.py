"""Tells once that kernels are being compiled, which takes seconds; imports nothing heavy.

A program sets `tell`; the kernels call it. It is not called where compiled code is on the disk.
"""

from collections.abc import Callable
from typing import Final

OnCompiling = Callable[[bool], None]
"""Takes whether the compiled code will be kept, so that it is compiled only this once."""

_CALLED: Final[list[OnCompiling]] = []


def tell(on_compiling: OnCompiling | None) -> None:
    """Call this when the next kernel is compiled, and never again; None: call nothing."""
    _CALLED[:] = [] if on_compiling is None else [on_compiling]


def is_compiling(*, is_kept: bool) -> None:
    """Call what was set, if it was not called yet."""
    while _CALLED:
        _CALLED.pop()(is_kept)
