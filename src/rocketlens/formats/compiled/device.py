"""The arrays that a call of a kernel holds; the rest of ``device.pxd`` is inline."""

import cython


@cython.final
@cython.cclass
class HeldArrays:
    """The arrays of one call: they are let go of with it, as when the call ends."""

    def __dealloc__(self) -> None:
        release(cython.address(self.views))
