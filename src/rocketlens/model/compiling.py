"""What a program decides about kernels that are compiled, or loaded, at their first call; imports
nothing heavy.

A program sets `tell`, which is called once when one is being compiled, which takes seconds, and not
where compiled code is on the disk; and `load_with`, which is how each is loaded.
"""

from collections.abc import Callable
from typing import Final

OnCompiling = Callable[[bool], None]
"""Takes whether the compiled code will be kept, so that it is compiled only this once."""

Load = Callable[[], object]
"""Compiles a kernel, or loads what was compiled before."""

_CALLED: Final[list[OnCompiling]] = []
_LOADERS: Final[list[Callable[[Load], object]]] = []


def tell(on_compiling: OnCompiling | None) -> None:
    """Call this when the next kernel is compiled, and never again; None: call nothing."""
    _CALLED[:] = [] if on_compiling is None else [on_compiling]


def is_compiling(*, is_kept: bool) -> None:
    """Call what was set, if it was not called yet."""
    while _CALLED:
        _CALLED.pop()(is_kept)


def load_with(loader: Callable[[Load], object] | None) -> None:
    """Set who calls what loads a kernel, in whatever thread; None: the thread that needs it."""
    _LOADERS[:] = [] if loader is None else [loader]


def load(load_kernel: Load) -> None:
    """Load a kernel; it is loaded when this returns. Raises what the loader does."""
    loader, *_ = *_LOADERS, _load_here
    loader(load_kernel)


def _load_here(load_kernel: Load) -> None:
    load_kernel()
