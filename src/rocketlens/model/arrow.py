"""Messages as Arrow tables, and from there as pandas or Polars frames.

Each of pyarrow, pandas and polars is an optional extra, imported on first use.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from rocketlens.errors import PackageMissing
from rocketlens.model.fields import COLUMNS, TEXT_COLUMNS, TIME_COLUMNS, field_of
from rocketlens.model.installation import install_command
from rocketlens.model.message import MessageExt

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import polars as pl
    import pyarrow as pa

FIRST_TIME_MS: Final = -62_135_596_800_000
LAST_TIME_MS: Final = 253_402_300_799_999
"""Epoch milliseconds of the years 1 to 9999, the range of a datetime. RocketMQ: unlimited."""
BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 64 << 20
"""Bytes of bodies after which a batch ends; a larger body has a batch of its own."""


def package(name: str, extra: str, what: str) -> Any:
    """Import and return an optional package.

    :raises PackageMissing: if it is not installed; names the extra that installs it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise
        needed = name.rpartition(".")[0] or name
        raise PackageMissing(
            f"{what} needs {needed}: {install_command(extra)}", name=needed
        ) from None


def schema() -> "pa.Schema":
    """Return the Arrow schema of messages: `rocketlens.model.fields.COLUMNS`.

    :raises PackageMissing: if pyarrow is not installed.
    """
    pa: Any = package("pyarrow", "arrow", "Arrow")
    text = pa.string()
    types = {
        "string": text,
        "array<string>": pa.list_(pa.field("element", text)),
        "map<string,string>": pa.map_(text, text),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    return pa.schema([pa.field(name, types[kind]) for name, kind in COLUMNS.items()])


def numbers(values: "npt.NDArray[Any]") -> "pa.Array":
    """Return an Arrow array of numbers or booleans.

    ``pa.array`` and ``to_numpy`` would import pandas if it is installed, which takes 0.5 s or more.
    """
    import numpy as np
    import pyarrow as pa

    kind = pa.from_numpy_dtype(values.dtype)
    stored = np.packbits(values, bitorder="little") if kind == pa.bool_() else values
    buffers = [None, pa.py_buffer(np.ascontiguousarray(stored))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def time_column(milliseconds: "npt.NDArray[np.int64]") -> "pa.Array":
    """Return epoch milliseconds as timestamps; null for times that a datetime cannot represent."""
    import numpy as np
    import pyarrow as pa

    # Such times come from a broken clock.
    can_show = (milliseconds >= FIRST_TIME_MS) & (milliseconds <= LAST_TIME_MS)
    buffers = (np.packbits(can_show, bitorder="little"), np.where(can_show, milliseconds * 1000, 0))
    kind = pa.timestamp("us", "UTC")
    return pa.Array.from_buffers(kind, len(milliseconds), list(map(pa.py_buffer, buffers)))


def batches_of(
    messages: Iterable[MessageExt], *, with_body: bool = True, with_text: bool = True
) -> "Iterator[pa.RecordBatch]":
    """Return messages as record batches of bounded size, while the messages arrive.

    Without bodies, the columns ``body``, ``body_error`` and `TEXT_COLUMNS` are null; without text,
    only `TEXT_COLUMNS` are.

    :raises PackageMissing: if pyarrow is not installed, before the first batch.
    """
    package("pyarrow", "arrow", "record_batches")
    return _batches(messages, partial(_batch, with_body=with_body, with_text=with_text))


def _batches(
    messages: Iterable[MessageExt], batch: "Callable[[list[MessageExt]], pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    kept: list[MessageExt] = []
    size = 0
    for message in messages:
        kept.append(message)
        size += len(message.body)
        if len(kept) == BATCH_ROWS or size >= BATCH_BYTES:
            yield batch(kept)
            kept, size = [], 0
    if kept:
        yield batch(kept)


def _batch(messages: list[MessageExt], *, with_body: bool, with_text: bool) -> "pa.RecordBatch":
    import numpy as np
    import pyarrow as pa

    to_arrow: dict[str, Callable[[Any], Any]] = {
        "born_host": str,
        "store_host": str,
        "properties": lambda value: list(value.items()),
    }
    if not with_body:
        to_arrow["body_error"] = lambda _: None
    bodies = pa.array([each.body if with_body else None for each in messages], pa.binary())
    made = {"body": bodies}
    if not (with_body and with_text):
        made |= dict.fromkeys(TEXT_COLUMNS, pa.nulls(len(messages), pa.string()))
    arrays = []
    for column in schema():
        if column.name in made:
            arrays.append(made[column.name])
            continue
        if column.name in TIME_COLUMNS:
            milliseconds = [getattr(each, TIME_COLUMNS[column.name]) for each in messages]
            arrays.append(time_column(np.array(milliseconds, np.int64)))
            continue
        convert = to_arrow.get(column.name)
        is_attribute = hasattr(MessageExt, column.name)
        read = attrgetter(column.name) if is_attribute else partial(field_of, name=column.name)
        values = list(map(read, messages))
        arrays.append(pa.array([convert(v) for v in values] if convert else values, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


class ArrowMessages:
    """Messages as Arrow data, and as tables of other libraries.

    The columns are those of `rocketlens.model.fields.COLUMNS`. Polars, DuckDB and pyarrow accept
    the object itself (``__arrow_c_stream__``); for pandas, call `to_pandas`.
    """

    __slots__ = ()

    def record_batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the messages as record batches of bounded size, in order."""
        raise NotImplementedError

    def to_reader(self) -> "pa.RecordBatchReader":
        """Return a reader that creates record batches as they are read: memory stays bounded.

        :raises PackageMissing: if pyarrow is not installed.
        """
        pa: Any = package("pyarrow", "arrow", "to_reader")
        return pa.RecordBatchReader.from_batches(schema(), self.record_batches())

    def to_arrow(self) -> "pa.Table":
        """Return all messages as an Arrow table.

        :raises PackageMissing: if pyarrow is not installed.
        """
        package("pyarrow", "arrow", "to_arrow")
        return self.to_reader().read_all()

    def to_pandas(self) -> "pd.DataFrame":
        """Return all messages as a pandas DataFrame; properties are dicts.

        :raises PackageMissing: if pyarrow or pandas is not installed.
        """
        package("pandas", "pandas", "to_pandas")
        package("pyarrow", "pandas", "to_pandas")
        frame: pd.DataFrame = self.to_arrow().to_pandas(maps_as_pydicts="lossy")
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Return all messages as a Polars DataFrame; properties are lists of structs.

        :raises PackageMissing: if pyarrow or polars is not installed.
        """
        library = package("polars", "polars", "to_polars")
        package("pyarrow", "polars", "to_polars")
        frame: pl.DataFrame = library.from_arrow(self.to_arrow())
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the messages as an Arrow C stream, in a PyCapsule."""
        return self.to_reader().__arrow_c_stream__(requested_schema)
