"""Builds Arrow record batches from rows and the log's bytes, without a loop over rows.

A message has the columns of `rocketlens.model.fields.COLUMNS`. Text is decoded as by Java:
malformed UTF-8 is U+FFFD. ``body`` is null if bodies are not requested. ``body_error`` is null, or
says why the body is as it was stored.

For records of which only the offsets are known (from an index file or a queue), `column` returns
one fixed field. The caller checks that there is a record; no byte outside the buffer is read.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.errors import BadInput, BodyError
from rocketlens.formats.body_compression import COMPRESSED, decompress
from rocketlens.formats.commitlog_record import HEADS, HOST_BYTES_V4, HOST_BYTES_V6, unpack_host
from rocketlens.formats.compiled import text as kernels
from rocketlens.formats.rows import Rows, check_rows
from rocketlens.late import np, npt, pa, pc
from rocketlens.model.arrow import numbers, time_column
from rocketlens.model.fields import COLUMNS, LIFE_COLUMNS, TEXT_COLUMNS, TIME_COLUMNS, is_json
from rocketlens.model.life import LifeState, is_plain, life_of_fields
from rocketlens.model.rocketmq import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMMIT,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)

if TYPE_CHECKING:
    Bytes = npt.NDArray[np.uint8]
    Numbers = npt.NDArray[np.int64]
    Slices = tuple[Numbers, npt.NDArray[np.int32]]
    """Starts in the content, and lengths; a length of -1 means that the part is absent."""

DERIVED: Final = frozenset(
    {*("msg_id", "offset_msg_id", "cluster", "broker"), *TIME_COLUMNS, *LIFE_COLUMNS, *TEXT_COLUMNS}
)
"""Columns that are computed from others, or do not belong to the record."""

STORED_BYTES_PER_BATCH: Final = 32 << 20
BODY_BYTES_PER_BATCH: Final = 64 << 20
"""A batch ends with the message that exceeds this, so one huge body has a batch of its own."""

_UNDECIDED: Final = 2
_STATES: Final = {each: number for number, each in enumerate(LifeState)}
_BORN_HOST: Final = HEADS[0].offsets["born_host"]
_HOST_BITS: Final = {"born": SYS_FLAG_BORN_HOST_V6, "store": SYS_FLAG_STORE_HOST_V6}


def slices(kind: Any, values: "Sequence[bytes | None]") -> Any:
    """Return an Arrow array of UTF-8 texts or bytes, with null for None; as `numbers` does."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=offsets[1:])
    valid = np.packbits([value is not None for value in values], bitorder="little")
    parts = (valid, offsets, b"".join(filter(None, values)))
    return pa.Array.from_buffers(kind, len(values), list(map(pa.py_buffer, parts)))


def batches(
    rows: Rows,
    *,
    with_body: bool,
    with_derived: bool = True,
    with_text: bool = True,
    origin: tuple[str | None, str | None] = (None, None),
    physical_offsets: "npt.NDArray[np.int64] | None" = None,
) -> Iterator[Any]:
    """Return the messages of ``rows`` as record batches of bounded size.

    ``with_derived``: include the columns of :data:`DERIVED`. ``with_text``: fill those of
    `TEXT_COLUMNS`. ``origin``: the names of cluster and broker, if known. ``physical_offsets``:
    those of the messages, if the offsets in ``rows`` are positions in ``content``
    (:mod:`rocketlens.formats.batch_rows`).
    """
    batch = partial(_batch, with_derived=with_derived, with_text=with_text, origin=origin)
    fields = rows.as_array
    offsets = fields["physical_offset"] if physical_offsets is None else physical_offsets
    sizes = np.cumsum(fields["store_size"], dtype=np.int64)
    start = 0
    while start < len(rows):
        before = int(sizes[start - 1]) if start else 0
        stop = int(np.searchsorted(sizes, before + STORED_BYTES_PER_BATCH, side="right"))
        part = rows.part(start, max(stop, start + 1))
        placed = offsets[start : start + len(part)]
        start += len(part)
        if not with_body:
            yield batch(part, placed, pa.nulls(len(part), pa.binary()))
        elif not part.sys_flags & COMPRESSED:
            bodies = _array(part.content, *part_slices(part, "body"), as_text=False)
            yield batch(part, placed, bodies)
        else:
            for first, end, *body in _decompress(part):
                yield batch(part.part(first, end), placed[first:end], *body)


def _decompress(rows: Rows) -> Iterator[tuple[int, int, Any, Any]]:
    """Yield first row and end of a batch, its bodies (some are compressed), and their errors."""
    bodies: list[bytes] = []
    errors: list[bytes | None] = []
    first = size = 0
    starts, lengths = part_slices(rows, "body")
    columns = zip(starts.tolist(), lengths.tolist(), rows.column("sys_flag"), strict=True)
    for number, (start, length, sys_flag) in enumerate(columns):
        body = rows.content[start : start + length].tobytes()
        body_error = None
        try:
            body = decompress(body, sys_flag)
        except BodyError as error:
            body_error = str(error).encode()
        bodies.append(body)
        errors.append(body_error)
        size += len(body)
        if size >= BODY_BYTES_PER_BATCH or number + 1 == len(rows):
            end = number + 1
            yield first, end, slices(pa.binary(), bodies), slices(pa.string(), errors)
            bodies, errors, first, size = [], [], number + 1, 0


def _batch(
    rows: Rows,
    offsets: "npt.NDArray[np.int64]",
    body: Any,
    body_error: Any = None,
    *,
    with_derived: bool,
    with_text: bool,
    origin: tuple[str | None, str | None],
) -> Any:
    fields = rows.as_array
    topic, tags, unique_key = (
        _array(rows.content, *part_slices(rows, name)) for name in ("topic", "tags", "unique_key")
    )
    made = {
        "physical_offset": numbers(offsets),
        "topic": topic,
        "tags": tags,
        "keys": _keys(rows),
        "unique_key": unique_key,
        "born_host": _hosts(rows, "born"),
        "store_host": _hosts(rows, "store"),
        "properties": _properties(rows),
        "body": body,
        "body_error": pa.nulls(len(rows), pa.string()) if body_error is None else body_error,
    }
    if with_derived:
        ids = _offset_msg_ids(rows, offsets)
        made |= {"msg_id": pc.coalesce(unique_key, ids), "offset_msg_id": ids}
        for name, value in zip(("cluster", "broker"), origin, strict=True):
            text = slices(pa.string(), [None if value is None else value.encode()])
            made[name] = text.take(numbers(np.zeros(len(rows), np.int32)))
        made |= text_columns(body, with_text=with_text)
        for name, milliseconds in TIME_COLUMNS.items():
            made[name] = time_column(fields[milliseconds])
        made |= life_columns(made["topic"], made["properties"], made["tags"], fields["sys_flag"])
    names = [name for name in COLUMNS if with_derived or name not in DERIVED]
    arrays = [made[name] if name in made else numbers(fields[name]) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names)


def text_columns(bodies: Any, *, with_text: bool) -> dict[str, Any]:
    """Return the arrays of `TEXT_COLUMNS` for an array of bodies, whose memory they share.

    All are null without ``with_text``, or if a body is null.
    """
    count = len(bodies)
    if not with_text or bodies.null_count:
        return dict.fromkeys(TEXT_COLUMNS, pa.nulls(count, pa.string()))
    _, bounds, values = bodies.buffers()
    offsets = np.frombuffer(bounds, np.int32)[bodies.offset : bodies.offset + count + 1]
    content = np.frombuffer(values or b"", np.uint8)
    checked = np.empty((2, count), np.uint8)
    kernels.check_texts(content, offsets, limits.MAX_SHOWN_JSON_BYTES, *checked)
    for row in np.flatnonzero(checked[1] == _UNDECIDED).tolist():
        checked[1, row] = is_json(bodies[row].as_py())
    shared = list(map(pa.py_buffer, (offsets, content)))
    return {
        name: pa.Array.from_buffers(
            pa.string(), count, [pa.py_buffer(np.packbits(valid, bitorder="little")), *shared]
        )
        for name, valid in zip(TEXT_COLUMNS, checked, strict=True)
    }


def life_columns(
    topics: Any, properties: Any, tags: Any, sys_flags: "npt.NDArray[np.int32]"
) -> dict[str, Any]:
    """Return the arrays of `LIFE_COLUMNS` for arrays of fields; only copies are parsed singly."""
    is_commit = sys_flags & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_COMMIT
    states = np.where(is_commit, _STATES[LifeState.COMMITTED], _STATES[LifeState.STORED])
    names = slices(pa.string(), [each.encode() for each in _STATES])
    coded = topics.dictionary_encode()
    distinct = coded.dictionary.to_pylist()
    copies = [number for number, each in enumerate(distinct) if not is_plain(each)]
    codes = np.frombuffer(coded.indices.buffers()[1], np.int32, len(topics))
    meant: list[bytes | None] | None = None
    for row in np.flatnonzero(np.isin(codes, copies)).tolist() if copies else ():
        if meant is None:
            meant = [each.encode() for each in topics.to_pylist()]
        given = dict(properties[row].as_py() or ())
        fields = (topics[row].as_py(), given, tags[row].as_py(), int(sys_flags[row]))
        state, topic, _ = life_of_fields(*fields)
        states[row] = _STATES[state]
        meant[row] = None if topic is None else topic.encode()
    real_topics = topics if meant is None else slices(pa.string(), meant)
    return {"state": names.take(numbers(states.astype(np.int32))), "real_topic": real_topics}


def _array(
    content: memoryview,
    starts: "Numbers",
    lengths: "npt.NDArray[np.int32]",
    *,
    as_text: bool = True,
) -> Any:
    """Return slices of the content as texts or bytes; a negative length gives null."""
    offsets, values = gather(content, starts, lengths, as_text=as_text)
    present = lengths >= 0
    valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.string() if as_text else pa.binary(), len(starts), buffers)


def _keys(rows: Rows) -> Any:
    offsets, starts, lengths = key_slices(rows)
    return pa.Array.from_buffers(
        pa.list_(pa.field("element", pa.string())),
        len(rows),
        [None, pa.py_buffer(offsets)],
        children=[_array(rows.content, starts, lengths)],
    )


def _properties(rows: Rows) -> Any:
    offsets, *both = property_slices(rows)
    names, values = (_array(rows.content, *one) for one in both)
    return pa.MapArray.from_arrays(numbers(offsets), names, values)


def _host_bytes(rows: Rows, which: str) -> "npt.NDArray[np.uint8]":
    """Return the first 8 bytes of each row's stored host: all of an IPv4 host."""
    lengths = np.full(len(rows), HOST_BYTES_V4, np.int32)
    starts = np.ascontiguousarray(_host_starts(rows, which), np.int64)
    _, hosts = gather(rows.content, starts, lengths, as_text=False)
    return hosts.reshape(-1, HOST_BYTES_V4)


def _host_starts(rows: Rows, which: str) -> Any:
    fields = rows.as_array
    starts = _BORN_HOST if which == "born" else fields["store_host_start"]
    return fields["physical_offset"] - rows.base_offset + starts


def _hosts(rows: Rows, which: str) -> Any:
    """Return ``address:port`` of each row; each distinct host is formatted once."""
    if rows.sys_flags & _HOST_BITS[which]:
        texts = [str(unpack_host(packed)).encode() for packed in _packed_hosts(rows, which)]
        return slices(pa.string(), texts)
    packed = _host_bytes(rows, which).view(np.uint64).ravel()
    coded = numbers(packed).dictionary_encode()
    distinct = np.frombuffer(coded.dictionary.buffers()[1], np.uint64, len(coded.dictionary))
    texts = [str(unpack_host(host.tobytes())).encode() for host in distinct]
    return slices(pa.string(), texts).take(coded.indices)


def _packed_hosts(rows: Rows, which: str) -> Iterator[bytes]:
    is_v6 = rows.as_array["sys_flag"] & _HOST_BITS[which] != 0
    starts = _host_starts(rows, which).tolist()
    for start, length in zip(starts, np.where(is_v6, HOST_BYTES_V6, HOST_BYTES_V4), strict=True):
        yield rows.content[start : start + length].tobytes()


def _offset_msg_ids(rows: Rows, physical_offsets: "npt.NDArray[np.int64]") -> Any:
    """Return the store host and physical offset of each row in hex."""
    offsets = physical_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    is_in_log = physical_offsets >= 0
    if rows.sys_flags & _HOST_BITS["store"] or not is_in_log.all():
        hosts = _packed_hosts(rows, "store")
        parts = zip(hosts, offsets, is_in_log, strict=True)
        ids = [(h + o.tobytes()).hex().upper() if there else "" for h, o, there in parts]
        return slices(pa.string(), list(map(str.encode, ids)))
    packed = np.empty((len(rows), 16), np.uint8)
    packed[:, :8] = _host_bytes(rows, "store")
    packed[:, 8:] = offsets
    text = packed.tobytes().hex().upper().encode()
    ends = np.arange(len(rows) + 1, dtype=np.int32) * 32
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(rows), buffers)


def column(content: "Bytes", positions: "Numbers", name: str) -> "Numbers":
    """Return one field of :data:`HEADS` of the records at ``positions`` of ``content``.

    A field after a host is read as if both hosts were IPv4.

    :raises IndexError: if the field of a record ends outside.
    """
    kind = np.dtype(HEADS[0].dtype_of(name))
    # A row for every byte of the content: rows overlap, and only those at ``positions`` are read.
    count = max(len(content) - kind.itemsize + 1, 0)
    rows: Any = np.ndarray(count, kind, content, strides=(1,)) if count else np.empty(0, kind)
    return np.asarray(rows[name][positions].astype(np.int64))


def store_timestamps(content: "Bytes", positions: "Numbers") -> "Numbers":
    """Return the store times of the records at ``positions``; errors as :func:`column`."""
    is_v6 = column(content, positions, "sys_flag") & SYS_FLAG_BORN_HOST_V6 != 0
    return column(content, positions + is_v6 * _MORE_BYTES, "store_timestamp_ms")


_MORE_BYTES = HEADS[1].size - HEADS[0].size


def part_slices(rows: Rows, part: str) -> "Slices":
    """Return the slices of one part: topic, properties, unique_key, keys, tags or body."""
    fields = rows.as_array
    starts = fields["physical_offset"] - rows.base_offset + fields[f"{part}_start"]
    return starts, np.ascontiguousarray(fields[f"{part}_length"])


def gather(
    content: "memoryview | Bytes",
    starts: "Numbers",
    lengths: "npt.NDArray[np.int32]",
    *,
    as_text: bool,
) -> "tuple[npt.NDArray[np.int32], Bytes]":
    """Copy slices of the content side by side; return their Arrow offsets, and bytes.

    A length of 0 or less gives an empty slice; the caller makes the null mask. ``as_text`` replaces
    malformed UTF-8 by U+FFFD exactly as Java does.

    :raises BadInput: if a slice is outside, or all together exceed 2**31 - 1 bytes.
    """
    if len(starts) != len(lengths):
        raise BadInput(f"{len(starts)} starts do not match {len(lengths)} lengths")
    offsets = np.empty(len(starts) + 1, np.int64)
    total = kernels.offsets_of(content, starts, lengths, as_text, offsets)
    if total < 0:
        raise BadInput(f"slice {-1 - total} lies outside the buffer")
    if total > limits.MAX_INT:
        raise BadInput(f"{total} bytes are more than one Arrow array holds: gather fewer rows")
    values = np.empty(total, np.uint8)
    kernels.copy_slices(content, starts, lengths, offsets, as_text, values)
    return offsets.astype(np.int32), values


def key_slices(rows: Rows) -> "tuple[npt.NDArray[np.int32], Numbers, npt.NDArray[np.int32]]":
    """Split every row's KEYS at single spaces; drop empty keys, and keep repeated ones.

    Row i has slices ``offsets[i] .. offsets[i + 1] - 1``; returns these offsets and the slices.

    :raises BadInput: if a row does not belong to the content.
    """
    offsets = np.empty(len(rows) + 1, np.int32)
    room = 2 * len(rows)
    while True:
        starts, lengths = np.empty(room, np.int64), np.empty(room, np.int32)
        count = kernels.key_slices(
            rows.content, rows.base_offset, rows.memory, offsets, starts, lengths
        )
        check_rows(count)
        if count <= room:
            return offsets, starts[:count], lengths[:count]
        room = count


def property_slices(rows: Rows) -> "tuple[npt.NDArray[np.int32], Slices, Slices]":
    """Split every row's properties into names and values, as Java's parser does.

    Row i has names and values ``offsets[i] .. offsets[i + 1] - 1``, each name once. A segment
    without name or value is dropped; of several with one (decoded) name, the first gives the
    position and the last the value.

    :raises BadInput: if a row does not belong to the content.
    """
    offsets = np.zeros(len(rows) + 1, np.int32)
    starts = np.empty((2, 8 * len(rows) + limits.MAX_RECORD_ENTRIES), np.int64)
    lengths = np.empty(starts.shape, np.int32)
    done = 0
    while True:
        done, count = kernels.property_slices(
            rows.content, rows.base_offset, rows.memory, done, offsets, *starts, *lengths
        )
        check_rows(done)
        if done == len(rows):
            names, values = zip(starts[:, :count], lengths[:, :count], strict=True)
            return offsets, names, values
        starts = np.concatenate([starts, np.empty_like(starts)], axis=1)
        lengths = np.concatenate([lengths, np.empty_like(lengths)], axis=1)
