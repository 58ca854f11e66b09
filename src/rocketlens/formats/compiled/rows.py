"""Arrays that kernels fill and read."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketlens.formats.compiled.record_constants import ROW_FIELDS

RECORD_DTYPE: Final = np.dtype([(name, np.dtype(kind)) for name, kind in ROW_FIELDS], align=True)
"""A row of a scan: one record."""

ByteArray = NDArray[np.uint8]
