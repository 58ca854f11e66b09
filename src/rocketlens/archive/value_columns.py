"""The value that each row of a row group has as one property, or at one path into bodies.

A search that has looked at some thousands of rows takes numbers and JSON apart in compiled code,
which takes longer to load than that: see `rocketlens.formats.compiled.kernels_values`.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.decode.text_formats import read_json
from rocketlens.model.sql.sql92_parser import Implied
from rocketlens.model.sql.sql92_values import Long
from rocketlens.query.filters.body_values import Step, value_of_tree

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Mask = npt.NDArray[np.bool_]

IN_BODY: Final = object()
"""Instead of a value: it takes the whole body to know it."""


class ValueColumn:
    """The values of rows, each once, and which of them a row has."""

    def __init__(self, codes: "npt.NDArray[np.int64]", values: list[Any]) -> None:
        """Keep them: row n has ``values[codes[n]]``."""
        self.codes: Final = codes
        self.values: Final = values
        self.code_list: Final[list[int]] = codes.tolist()


class _Numbers:
    """What compiled code knows of some values: their kinds, and the numbers among them."""

    def __init__(self, count: int) -> None:
        import numpy as np

        self.kinds: Final = np.zeros(count, np.uint8)
        self.integers: Final = np.zeros(count, np.int64)
        self.reals: Final = np.zeros(count, np.float64)

    def may_hold(self, fact: Implied, *, of_texts: bool) -> "Mask":
        """Return which values may be in the range of a fact, or fail to be compared with it.

        ``of_texts``: a text becomes a number of the type that it is compared with, or fails to.
        """
        import numpy as np

        from rocketlens.formats.compiled import kernels_values as kernels

        may_hold: Mask = self.kinds != kernels.ABSENT
        is_integer, is_real = self.kinds == kernels.INTEGER, self.kinds == kernels.REAL
        bounds = [each for each in (fact.low, fact.high) if each is not None]
        for bound in bounds if of_texts else ():
            if isinstance(bound, int):
                is_real[:] = False
                if not isinstance(bound, Long):
                    is_integer &= np.abs(self.integers) <= limits.MAX_INT
        for is_number, numbers in ((is_integer, self.integers), (is_real, self.reals)):
            may_hold &= may_be_within(numbers, fact) | ~is_number
        return may_hold


def may_be_within(numbers: "npt.NDArray[Any]", fact: Implied) -> "Mask":
    """Return which numbers are in the range of a fact."""
    import numpy as np

    within = np.ones(len(numbers), np.bool_)
    if fact.low is not None:
        within &= numbers >= _like(numbers, fact.low)
    if fact.high is not None:
        within &= numbers <= _like(numbers, fact.high)
    return within


def _like(numbers: "npt.NDArray[Any]", bound: float) -> float:
    """Return a bound as it is compared: two whole numbers as such, all others as doubles.

    numpy compares a whole number with a double as doubles.
    """
    return int(bound) if isinstance(bound, int) and numbers.dtype.kind == "i" else float(bound)


class PropertyValues:
    """The values of one property."""

    def __init__(self, properties: "pa.Table", name: str) -> None:
        """Find them in the column of properties."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        codes = np.full(properties.num_rows, -1, np.int64)
        texts: list[pa.Array] = []
        start = count = 0
        for chunk in properties.column(0).chunks:
            offsets = list_offsets(chunk)
            first = int(offsets[0])
            names = chunk.keys.slice(first, int(offsets[-1]) - first)
            at = np.flatnonzero(pc.equal(names, name).to_numpy(zero_copy_only=False)) + first
            rows = np.searchsorted(offsets, at, side="right") - 1
            # Of two properties of a name the last one counts.
            codes[start + rows] = np.arange(count, count + len(at))
            texts.append(chunk.items.take(pa.array(at)))
            start += len(chunk)
            count += len(at)
        self._texts: Final = pa.concat_arrays(texts) if texts else pa.array([], pa.string())
        is_empty = np.diff(list_offsets(self._texts)) == 0
        if is_empty.any():
            codes[(codes >= 0) & is_empty[codes]] = -1
        self._codes: Final = codes

    @property
    def are_there(self) -> "Mask":
        """Which rows have the property."""
        are_there: Mask = self._codes >= 0
        return are_there

    @cached_property
    def column(self) -> ValueColumn:
        """The values; None where a row has none."""
        coded = self._texts.dictionary_encode()
        # Code -1 is the last of them.
        numbers = _appended(coded.indices.to_numpy() + 1, 0)
        return ValueColumn(numbers[self._codes], [None, *coded.dictionary.to_pylist()])

    def may_hold(self, fact: Implied, *, is_compiled: bool) -> "Mask":
        """Return for which rows a fact may hold, or comparing fails."""
        import numpy as np

        if fact.texts is not None:
            may_hold = are_in(self._texts, fact.texts)
        elif is_compiled:
            may_hold = self._numbers.may_hold(fact, of_texts=True)
        else:
            may_hold = np.ones(len(self._texts), np.bool_)
        of_rows: Mask = _appended(may_hold, 0)[self._codes]
        return of_rows

    @cached_property
    def _numbers(self) -> _Numbers:
        import numpy as np

        from rocketlens.formats.compiled import kernels_values as kernels

        read = _Numbers(len(self._texts))
        kernels.numbers_of(
            np.frombuffer(self._texts.buffers()[2] or b"", np.uint8),
            list_offsets(self._texts),
            read.kinds,
            read.integers,
            read.reals,
        )
        return read


class PathValues:
    """The values at one path into some bodies, which must be plain UTF-8."""

    def __init__(self, bodies: "pa.Array", is_read: "Mask", steps: Sequence[Step]) -> None:
        """Take apart those bodies that are to be read; see `can_be_compiled` for the steps."""
        import numpy as np

        from rocketlens.formats.compiled import kernels_values as kernels

        self._content: Final = np.frombuffer(bodies.buffers()[2] or b"", np.uint8)
        self._read: Final = _Numbers(len(bodies))
        self._starts: Final = np.zeros(len(bodies), np.int64)
        self._lengths: Final = np.zeros(len(bodies), np.int64)
        names = [each.encode() if isinstance(each, str) else b"" for each in steps]
        kernels.values_at(
            self._content,
            list_offsets(bodies),
            is_read,
            np.frombuffer(b"".join(names), np.uint8),
            np.cumsum([0, *map(len, names)]).astype(np.int32),
            np.array([each if isinstance(each, int) else -1 for each in steps], np.int64),
            self._read.kinds,
            self._starts,
            self._lengths,
            self._read.integers,
            self._read.reals,
        )

    @staticmethod
    def can_be_compiled(steps: Sequence[Step]) -> bool:
        """Return whether compiled code follows a path: not to elements counted from the end."""
        from rocketlens.formats.compiled.kernels_values import COMPILED_STEPS

        return 0 < len(steps) <= COMPILED_STEPS and all(
            each.isprintable() if isinstance(each, str) else each is not None and each >= 0
            for each in steps
        )

    def column(self, rows: "npt.NDArray[np.int64]") -> ValueColumn:
        """Return the values of some rows; `IN_BODY` of the others, and where it takes the body."""
        import numpy as np

        from rocketlens.formats.compiled import kernels_values as kernels

        kinds = self._read.kinds[rows]
        codes = np.zeros(len(self._read.kinds), np.int64)
        codes[rows[kinds == kernels.ABSENT]] = 1
        there = rows[kinds > kernels.UNSURE]
        coded = self._tokens(there).dictionary_encode()
        codes[there] = coded.indices.to_numpy() + 2
        tokens = coded.dictionary.to_pylist()
        values = (value_of_tree(read_json(f"[{str(each, 'utf-8')}]")[0]) for each in tokens)
        return ValueColumn(codes, [IN_BODY, None, *values])

    def may_hold(self, fact: Implied) -> "Mask":
        """Return for which rows a fact may hold, or comparing fails."""
        import numpy as np

        from rocketlens.formats.compiled import kernels_values as kernels

        kinds = self._read.kinds
        if fact.texts is None:
            return self._read.may_hold(fact, of_texts=False)
        may_hold: Mask = kinds != kernels.ABSENT
        texts = np.flatnonzero(kinds == kernels.TEXT)
        quoted = frozenset(f'"{each}"' for each in fact.texts)
        may_hold[texts] = are_in(self._tokens(texts), quoted)
        return may_hold

    def _tokens(self, rows: "npt.NDArray[np.int64]") -> "pa.Array":
        import numpy as np
        import pyarrow as pa

        from rocketlens.formats.compiled import kernels

        lengths = self._lengths[rows].astype(np.int32)
        offsets, content = kernels.gather(self._content, self._starts[rows], lengths, as_text=False)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
        return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def keys_hold(keys: "pa.ChunkedArray", fact: Implied) -> "tuple[Mask, Mask]":
    """Return which rows have keys, and which have one for which a fact may hold."""
    import numpy as np

    have, hold = [np.zeros(0, np.bool_)], [np.zeros(0, np.bool_)]
    for chunk in keys.chunks:
        offsets = list_offsets(chunk)
        have.append(offsets[1:] > offsets[:-1])
        first = int(offsets[0])
        texts = chunk.values.slice(first, int(offsets[-1]) - first)
        hold.append(
            any_of(offsets, are_in(texts, fact.texts)) if fact.texts is not None else have[-1]
        )
    return np.concatenate(have), np.concatenate(hold)


def any_of(offsets: "npt.NDArray[np.int32]", is_so: "Mask") -> "Mask":
    """Return for which lists it is so of one of their elements, which begin with the first list."""
    import numpy as np

    counts = np.concatenate([[0], np.cumsum(is_so)])
    found: Mask = counts[offsets[1:] - offsets[0]] > counts[offsets[:-1] - offsets[0]]
    return found


def list_offsets(array: "pa.Array") -> "npt.NDArray[np.int32]":
    """Return where each text or list of an array begins, and where the last one ends."""
    import numpy as np

    offsets = array.buffers()[1]
    if not len(array) or offsets is None:
        return np.zeros(1, np.int32)
    return np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]


def are_in(texts: "pa.Array", chosen: frozenset[str]) -> "Mask":
    """Return which texts, or bytes of texts, are among some."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A half of a surrogate pair is in no text.
    encoded = sorted(each.encode("utf-8", "surrogatepass") for each in chosen)
    as_bytes = texts.cast(pa.binary()) if texts.type == pa.string() else texts
    is_in: Mask = pc.is_in(as_bytes, pa.array(encoded, pa.binary())).to_numpy(zero_copy_only=False)
    return is_in


def _appended(values: "npt.NDArray[Any]", last: int) -> "npt.NDArray[Any]":
    import numpy as np

    return np.append(values, np.array([last], values.dtype))
