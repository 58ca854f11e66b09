"""The value that each row of a row group has as one property, and facts about whole columns."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from rocketlens.model.sql.sql92_parser import Implied

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Mask = npt.NDArray[np.bool_]


class ValueColumn:
    """The values of rows, each once, and which of them a row has."""

    def __init__(self, codes: "npt.NDArray[np.int64]", values: list[Any]) -> None:
        """Keep them: row n has ``values[codes[n]]``."""
        self.codes: Final = codes
        self.values: Final = values
        self.code_list: Final[list[int]] = codes.tolist()


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

    def may_hold(self, fact: Implied) -> "Mask":
        """Return for which rows a fact may hold, or comparing fails."""
        import numpy as np

        may_hold = np.ones(len(self._texts), np.bool_)
        if fact.texts is not None:
            may_hold = are_in(self._texts, fact.texts)
        of_rows: Mask = _appended(may_hold, 0)[self._codes]
        return of_rows


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
