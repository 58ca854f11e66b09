"""Fields of fixed size, declared once; everything that reads or writes their bytes is derived.

A format declares its fields as the annotations of a class, beside its layout table::

    class QueueEntry(NamedTuple):
        physical_offset: I64
        store_size: I32
        tags_code: I64

    LAYOUT = Layout.of(QueueEntry)

which makes structs (``LAYOUT.struct``, ``LAYOUT.struct_of("store_size")``), numpy dtypes
(``LAYOUT.dtype``) and offsets (``LAYOUT.offsets``, which kernels use as constants).
"""

from functools import cached_property
from struct import Struct
from typing import Any, Final

import msgspec

CODES: Final = {"i8": "b", "i16": "h", "i32": "i", "i64": "q"}
"""The :mod:`struct` codes of the types in layout tables."""


class Layout(msgspec.Struct, frozen=True, dict=True):
    """Contiguous big-endian fields: name and struct code of each."""

    fields: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, declared: type) -> "Layout":
        return cls(tuple((name, CODES[type_name]) for name, type_name in declared_types(declared)))

    @cached_property
    def struct(self) -> Struct:
        return self.struct_of(*self.offsets)

    @cached_property
    def size(self) -> int:
        return self.struct.size

    @cached_property
    def offsets(self) -> dict[str, int]:
        offsets, offset = {}, 0
        for name, code in self.fields:
            offsets[name] = offset
            offset += Struct(f">{code}").size
        return offsets

    @cached_property
    def dtype(self) -> Any:
        """All fields as a row of a numpy array, for ``np.dtype``."""
        return self.dtype_of(*self.offsets)

    def struct_of(self, *names: str) -> Struct:
        """Return the struct of some fields, for use at the start of the layout.

        It skips all other fields, and ends after the last named field.
        """
        codes = [
            code if name in names else f"{Struct(f'>{code}').size}x" for name, code in self.fields
        ]
        last = max(map(list(self.offsets).index, names))
        return Struct(">" + "".join(codes[: last + 1]))

    def dtype_of(self, *names: str) -> Any:
        """Return some fields as a row of a numpy array that ends after the last named field."""
        codes = dict(self.fields)
        sizes = {name: Struct(f">{codes[name]}").size for name in names}
        kinds = {"b": "i", "h": "i", "i": "i", "q": "i", "s": "V"}
        return {
            "names": list(names),
            "formats": [f">{kinds[codes[name][-1]]}{sizes[name]}" for name in names],
            "offsets": [self.offsets[name] for name in names],
            "itemsize": self.struct_of(*names).size,
        }


def declared_types(declared: type) -> list[tuple[str, str]]:
    """Return the annotated fields of a class in order: each name, and its type in the tables."""
    return [
        (name, kind.__metadata__[0])
        for name, kind in declared.__annotations__.items()
        if hasattr(kind, "__metadata__")
    ]
