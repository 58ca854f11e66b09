"""numpy and pyarrow, each imported when something of it is first asked for.

numpy takes 0.1 s, pyarrow 0.2 s and more, and many a command needs neither. pyarrow is an extra of
the package besides.
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
