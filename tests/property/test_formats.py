"""Whatever is written is read again, and whatever is read is a value or a documented error."""

import json
import string
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlens.errors import BadInput, BodyError, ConfigError, FormatError, RecordError
from rocketlens.formats import batch_body, body_compression, index_file
from rocketlens.formats import commitlog_record as records
from rocketlens.formats.batch_body import BatchMember
from rocketlens.model import properties as props
from rocketlens.model.message import Host
from rocketlens.model.message_id import OffsetMessageId, UniqueKey, address_text
from rocketlens.model.text import json_dialect
from rocketlens.model.text.java import decode_utf8
from tests.support.effort import sized

i16 = st.integers(-(2**15), 2**15 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
u31 = st.integers(0, 2**31 - 1)
u63 = st.integers(0, 2**63 - 1)
addresses = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)).map(
    address_text
)
hosts = st.builds(Host, addresses, st.integers(0, 65535))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
versions = st.sampled_from([records.MAGIC_V1, records.MAGIC_V2])

some_records = st.builds(
    records.Record,
    total_size=st.just(0),
    magic=versions,
    body_crc=st.just(0),
    queue_id=i32,
    flag=i32,
    queue_offset=i64,
    physical_offset=u63,
    sys_flag=i32,
    born_timestamp_ms=i64,
    born_host=hosts,
    store_timestamp_ms=i64,
    store_host=hosts,
    reconsume_times=i32,
    prepared_transaction_offset=i64,
    body=st.binary(max_size=100),
    topic=texts,
    properties=st.binary(max_size=100),
)


def without_computed(record):
    """All but what the encoder computes."""
    kept = {name: getattr(record, name) for name in record.__slots__}
    for name in ("total_size", "body_crc"):
        del kept[name]
    kept["sys_flag"] &= ~0x30
    return kept


@given(some_records)
def test_a_record_comes_back(record):
    encoded = records.encode(record)
    decoded = records.decode(encoded, physical_offset=record.physical_offset)
    assert without_computed(decoded) == without_computed(record)
    assert decoded.total_size == len(encoded)
    assert records.encode(decoded) == encoded


@given(some_records)
def test_a_record_with_its_checksum_comes_back_and_is_replaced_by_itself(record):
    encoded = records.encode(record, append_crc=True)
    decoded = records.decode(encoded)
    assert decoded.properties[:-20].startswith(record.properties[:-1])
    assert records.encode(decoded, append_crc=True) == encoded
    assert records.encode(decoded) == encoded


@given(some_records, st.integers(0, 10_000), st.binary(max_size=20), st.binary(max_size=20))
def test_a_record_reads_the_same_wherever_the_bytes_were_cut(record, cut, before, behind):
    encoded = records.encode(record)
    decoded = records.decode(encoded)
    assert records.decode(before + encoded + behind, len(before)) == decoded
    view = memoryview(before + encoded + behind)[len(before) : len(before) + len(encoded)]
    assert records.decode(view) == decoded
    with suppress(RecordError):
        records.decode(encoded[: cut % len(encoded)])
        raise AssertionError("a prefix was taken for the record")


@settings(max_examples=sized(80, 300))
@given(some_records, st.integers(0, 10_000), st.integers(1, 255), versions)
def test_a_damaged_record_is_a_record_error_or_a_record_of_the_same_size(
    record, position, difference, magic
):
    encoded = bytearray(records.encode(record))
    encoded[position % len(encoded)] ^= difference
    with suppress(RecordError):
        read = records.decode(bytes(encoded))
        assert read.total_size == len(encoded)


@given(st.binary(max_size=300), versions, u31)
def test_bytes_that_are_no_record_are_a_record_error(content, magic, size):
    for framed in (
        content,
        records.SIZE_AND_MAGIC.pack(len(content) + 8, magic) + content,
        records.SIZE_AND_MAGIC.pack(size, magic) + content,
    ):
        with suppress(RecordError):
            assert records.decode(framed).total_size <= len(framed)


@given(some_records.map(records.encode))
def test_a_message_is_made_of_any_record_with_its_body_or_the_stored_one_and_a_note(encoded):
    record = records.decode(encoded)
    message = records.message_of(record, body_limit=1 << 16)
    assert message.store_size == len(encoded)
    assert message.keys == props.split_keys(message.properties.get("KEYS"))
    expected = (record.body, message.body_error or "an error")
    with suppress(BodyError):
        body = body_compression.decompress(record.body, record.sys_flag, 1 << 16)
        expected = (body, None)
    assert (message.body, message.body_error) == expected


members = st.builds(BatchMember, i32, st.binary(max_size=50), st.binary(max_size=50))


@given(st.lists(members, max_size=6))
def test_a_batch_comes_back(batch):
    encoded = batch_body.encode(batch)
    assert list(batch_body.decode(encoded)) == batch


@given(st.lists(members, max_size=4), st.integers(0, 500), st.integers(1, 255))
def test_a_damaged_batch_is_a_format_error_or_members(batch, position, difference):
    encoded = bytearray(batch_body.encode(batch) + b"\0")
    encoded[position % len(encoded)] ^= difference
    with suppress(FormatError):
        read = list(batch_body.decode(bytes(encoded)))
        assert len(batch_body.encode(read)) == len(encoded)


@given(st.binary(max_size=2000), st.sampled_from([0x001, 0x101, 0x201, 0x301]))
def test_a_body_comes_back_through_every_compression(body, sys_flag):
    packed = body_compression.compress(body, sys_flag)
    assert body_compression.decompress(packed, sys_flag) == body
    assert body_compression.decompress(packed, sys_flag, len(body)) == body


@settings(max_examples=sized(80, 300))
@given(st.binary(max_size=200), st.sampled_from([0x001, 0x101, 0x201, 0x301]), st.booleans())
def test_bytes_that_are_no_packed_body_are_a_body_error(content, sys_flag, has_head):
    head = {0x101: b"\x04\x22\x4d\x18", 0x201: b"\x28\xb5\x2f\xfd"}.get(sys_flag, b"\x78\x9c")
    with suppress(BodyError):
        body_compression.decompress((head if has_head else b"") + content, sys_flag, 1 << 20)


@given(st.binary(max_size=400))
def test_bytes_that_are_no_index_file_are_an_index_file_error(content):
    with suppress(index_file.IndexFileError):
        assert index_file.infer_geometry(content).file_bytes == len(content)


json_keys = st.one_of(texts, st.integers(-(2**63), 2**63))
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts, st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(json_keys, inner)),
    max_leaves=12,
)


def with_text_keys(value):
    if isinstance(value, dict):
        return {str(key): with_text_keys(member) for key, member in value.items()}
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


@given(json_values)
def test_a_config_value_comes_back_with_its_integer_keys(value):
    text = json_dialect.dumps_file(value)
    assert json_dialect.loads_file(text, integer_keys=True) == value
    assert json_dialect.loads_file(text.encode(), integer_keys=True) == value


@given(json_values)
def test_a_config_value_comes_back_as_plain_json_with_text_for_keys(value):
    # The last of "1" and 1 counts on both sides.
    assert json_dialect.loads_file(json.dumps(value)) == with_text_keys(value)


@settings(max_examples=sized(80, 300))
@given(st.text(alphabet='{}[]:,"\\ 01-\nax\u0663', max_size=40))
def test_text_that_is_no_config_is_a_config_error(text):
    with suppress(ConfigError):
        value = json_dialect.loads_file(text)
        assert json_dialect.loads_file(json.dumps(value)) == value


property_texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=9
)
mappings = st.dictionaries(property_texts, property_texts, max_size=40)


@given(mappings, st.booleans())
def test_properties_come_back_in_either_separator_style(properties, trailing_separator):
    text = props.format_properties(properties, trailing_separator=trailing_separator)
    assert list(props.parse(text).items()) == list(properties.items())
    assert props.parse(decode_utf8(text.encode())) == properties


@given(st.text(alphabet="\x01\x02ab", max_size=30))
def test_any_property_string_reads_as_its_segments_do(text):
    expected = {}
    for segment in text.split("\x02"):
        name, separator, value = segment.partition("\x01")
        if name and separator and value:
            expected[name] = value
    assert props.parse(text) == expected


@given(mappings, st.sampled_from([16, 128]))
def test_java_order_keeps_all_properties_and_does_not_change_the_second_time(
    properties, table_size
):
    ordered = props.java_order(properties, table_size)
    assert ordered == properties
    assert list(props.java_order(ordered, table_size)) == list(ordered)


@given(st.builds(OffsetMessageId, hosts, u63))
def test_an_offset_message_id_comes_back_in_either_case(offset_id):
    assert OffsetMessageId.decode(offset_id.encode()) == offset_id
    assert OffsetMessageId.decode(offset_id.encode().lower()) == offset_id


u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)


@given(st.builds(UniqueKey, addresses, u16, u32, u32, u16))
def test_a_unique_key_comes_back_in_either_case(key):
    assert UniqueKey.decode(key.encode()) == key
    assert UniqueKey.decode(key.encode().lower()) == key


@given(st.integers(0, 4_000_000_000_000), addresses, i32, i32, i32)
def test_a_made_key_is_read_as_the_time_at_which_it_was_made(now_ms, address, pid, hashed, number):
    key = UniqueKey.at(now_ms, address, process_id=pid, client_hash=hashed, counter=number)
    assert UniqueKey.decode(key.encode()) == key
    assert key.nearly_time_ms(now_ms + 1) == now_ms


@given(st.one_of(st.text(max_size=60), st.text(string.hexdigits, min_size=32, max_size=32)))
def test_any_text_is_an_id_or_bad_input(text):
    for kind in (OffsetMessageId, UniqueKey):
        with suppress(BadInput):
            assert kind.decode(text).encode() == text.upper()
