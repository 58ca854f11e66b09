"""The arrays that a kernel call holds; the rest of ``device.pxd`` is inline."""

import cython


@cython.final
@cython.cclass
class HeldArrays:
    """The arrays of one call, which are released with this object at its end."""

    def __dealloc__(self) -> None:
        release(cython.address(self.views))
