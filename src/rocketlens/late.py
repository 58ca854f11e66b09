"""Lazy imports of numpy (0.1 s) and pyarrow (0.2 s and more, an optional extra).

Each module is imported when one of its attributes is first read: many commands need neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:

    class _Late:
        def __init__(self, name: str) -> None:
            self._module = name

        def __getattr__(self, name: str) -> Any:
            value = self.__dict__[name] = getattr(import_module(self._module), name)
            return value

    np, npt = _Late("numpy"), _Late("numpy.typing")
    pa, pc, pq = _Late("pyarrow"), _Late("pyarrow.compute"), _Late("pyarrow.parquet")

__all__ = ["np", "npt", "pa", "pc", "pq"]
