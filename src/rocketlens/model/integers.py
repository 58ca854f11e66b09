"""Java's signed integers by their width, to annotate the fields that have them.

``int`` in every other respect; what declares a layout or a column finds the name of the type, which
is the one in the layout tables, as the annotation's metadata.
"""

from typing import Annotated

I16 = Annotated[int, "i16"]
I32 = Annotated[int, "i32"]
I64 = Annotated[int, "i64"]
