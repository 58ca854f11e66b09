"""Records of the commit log, byte by byte, and their compressed bodies."""

import resource
import struct
import tracemalloc
import zlib
from contextlib import suppress

import lz4.frame
import pytest
import zstandard
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.errors import BadInput, BodyError, RecordError
from rocketlens.formats import body_compression as compression
from rocketlens.formats import commitlog_record as records
from rocketlens.formats.commitlog_record import Reason
from rocketlens.model.message import Host
from tests.unit.formats import record_vectors
from tests.unit.formats.kernel_logs import raw_record

# Stored by the broker of RocketMQ 5.5.0 with enabledAppendPropCRC=true.
WITH_CRC = bytes.fromhex(
    "0000008cdaa320a712843f5a000000030000000000000000000000060000000000000e0c000000000000018bcfe5"
    "687b0a01020300009c40000001a1fcaa61780a01020300009c40000000000000000000000000000000116e6f206c"
    "61737420736570617261746f720154001f61016202544147530174025f5f43524333322301313132303230373330"
    "3202"
)
PLAIN = records.decode(WITH_CRC)
V6 = Host("2001:db8::1", 10911)


def reason_of(encoded, **options):
    with pytest.raises(RecordError) as caught:
        records.decode(encoded, **options)
    return caught.value.reason


def patched(encoded, position, form, value):
    changed = bytearray(encoded)
    struct.pack_into(form, changed, position, value)
    return bytes(changed)


@pytest.mark.parametrize("index", range(34))
def test_records_that_rocketmq_wrote_read_as_rocketmq_reads_them(index):
    raw, expected = record_vectors.all_records()[index]
    record = records.decode(raw, physical_offset=expected["physical_offset"])
    assert record_vectors.fields_of(record) == expected


@pytest.mark.parametrize("index", range(34))
def test_records_that_rocketmq_wrote_are_written_byte_for_byte(index):
    raw, _ = record_vectors.all_records()[index]
    assert records.encode(records.decode(raw)) == raw


def test_the_vectors_have_every_kind_of_record():
    found = [records.decode(raw) for raw, _ in record_vectors.all_records()]
    assert {record.magic for record in found} == {records.MAGIC_V1, records.MAGIC_V2}
    assert {record.sys_flag & 0x30 for record in found} == {0, 0x10, 0x20, 0x30}
    assert {record.sys_flag & 0x701 for record in found} == {0, 1, 0x101, 0x201, 0x301}
    assert {record.properties[-1:] for record in found} == {b"", b"\x02", b"t"}
    assert sum(b"__CRC32#" in record.properties for record in found) == len(found) // 2


def test_the_checksum_of_a_whole_record_is_written_as_rocketmq_writes_it():
    with_crc = [record for record, _ in record_vectors.all_records()][17:]
    for raw in with_crc:
        record = records.decode(raw)
        bare = replace(record, properties=record.properties[: -records.CRC_PROPERTY_BYTES])
        assert records.encode(bare, append_crc=True) == raw


def test_a_checksum_is_replaced_not_doubled():
    moved = replace(PLAIN, physical_offset=0)
    encoded = records.encode(moved, append_crc=True)
    assert records.decode(encoded).properties.count(b"__CRC32#") == 1
    assert len(encoded) == len(WITH_CRC)
    assert reason_of(records.encode(moved)) == Reason.CRC


def test_the_checksum_gets_the_separator_that_the_properties_lack():
    open_end = replace(PLAIN, properties=b"a\x01b")
    assert records.decode(records.encode(open_end, append_crc=True)).properties.startswith(
        b"a\x01b\x02__CRC32#\x01"
    )
    empty = replace(PLAIN, properties=b"")
    assert len(records.decode(records.encode(empty, append_crc=True)).properties) == 20


def test_the_checksum_covers_every_byte_before_it():
    covered = len(WITH_CRC) - records.CRC_PROPERTY_BYTES
    whole = zlib.crc32(WITH_CRC[:covered]) & 0x7FFFFFFF
    digits = WITH_CRC[covered + len("__CRC32#\x01") : -1]
    assert digits == f"{whole:010d}"[::-1].encode()
    for position in range(covered):
        changed = bytearray(WITH_CRC)
        changed[position] ^= 0x01
        with pytest.raises(RecordError):
            records.decode(bytes(changed))


@pytest.mark.parametrize("digits", [b"0000000000", b"112020730\xff", b"3027020211", b"-120207302"])
def test_a_wrong_checksum_of_any_shape_is_refused(digits):
    changed = WITH_CRC[:-11] + digits + b"\x02"
    assert reason_of(changed) == Reason.CRC
    assert records.decode(changed, check_crc=False).body == PLAIN.body


def test_a_property_that_only_looks_like_a_checksum_is_no_checksum():
    for properties in (
        b"__CRC32#\x01123456789\x02",
        b"__CRC32#\x011234567890",
        b"__CRC32#\x011234567890\x02a\x01b\x02",
        b"__CRC33#\x011234567890\x02",
    ):
        record = replace(PLAIN, properties=properties)
        assert records.decode(records.encode(record)).properties == properties


def test_every_prefix_of_a_record_is_refused_and_nothing_behind_it_is_read():
    for raw, _ in record_vectors.all_records():
        for length in range(len(raw)):
            reason = reason_of(raw[:length])
            assert reason == (Reason.END if length < 8 else Reason.SIZE)
        record = records.decode(raw)
        for behind in (b"\xff" * 40, raw, b"\0"):
            assert records.decode(raw + behind) == record
            assert records.decode(behind + raw, len(behind)) == record


NUMBER_FIELDS = [
    ("queue_id", 12, ">i"),
    ("flag", 16, ">i"),
    ("queue_offset", 20, ">q"),
    ("physical_offset", 28, ">q"),
    ("sys_flag", 36, ">i"),
    ("born_timestamp_ms", 40, ">q"),
    ("store_timestamp_ms", 56, ">q"),
    ("reconsume_times", 72, ">i"),
    ("prepared_transaction_offset", 76, ">q"),
]


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_is_refused_or_changes_exactly_the_field_it_is_in(bit):
    raw = raw_record(4096, topic=b"Topic", properties_bytes=b"a\x01b\x02", body=b"body")
    raw = patched(raw, 8, ">i", zlib.crc32(b"body") & 0x7FFFFFFF)
    good = records.decode(raw, physical_offset=4096)
    # Where a field stands, by the table; sizes, magic and checksum are no fields to change.
    spans = {
        **{name: (at, at + struct.calcsize(form)) for name, at, form in NUMBER_FIELDS},
        "born_host": (48, 56),
        "store_host": (64, 72),
        "topic": (93, 98),
        "properties": (100, 104),
    }
    for position in range(len(raw)):
        changed = bytearray(raw)
        changed[position] ^= 1 << bit
        try:
            record = records.decode(bytes(changed))
        except RecordError:
            continue
        (field,) = [name for name, (start, stop) in spans.items() if start <= position < stop]
        differing = {
            name
            for name in record.__struct_fields__
            if getattr(record, name) != getattr(good, name)
        }
        assert differing == {field}, position


@pytest.mark.parametrize(
    ("field", "form", "value", "reason"),
    [
        (0, ">i", 90, Reason.SIZE),
        (0, ">i", -1, Reason.SIZE),
        (0, ">i", 2**31 - 1, Reason.SIZE),
        (0, ">i", len(WITH_CRC) - 1, Reason.SIZE),
        (4, ">I", 0xDAA320A8, Reason.MAGIC),
        (4, ">I", 0, Reason.MAGIC),
        (4, ">I", 0xCBD43194, Reason.BLANK),
        (4, ">I", 0xDAA320AB, Reason.SIZE),
        (36, ">i", 0x10, Reason.HOST),
        (52, ">i", 65536, Reason.HOST),
        (52, ">i", -1, Reason.HOST),
        (68, ">i", 65536, Reason.HOST),
        (68, ">i", -(2**31), Reason.HOST),
        (84, ">i", -1, Reason.SIZE),
        (84, ">i", 2**31 - 1, Reason.SIZE),
        (84, ">i", 18, Reason.SIZE),
        (105, ">b", -1, Reason.SIZE),
        (105, ">b", 127, Reason.SIZE),
        (107, ">h", -1, Reason.SIZE),
        (107, ">h", 32767, Reason.SIZE),
        (107, ">h", 30, Reason.SIZE),
        (8, ">i", 1, Reason.CRC),
    ],
)
def test_a_length_port_or_magic_that_cannot_be_is_refused(field, form, value, reason):
    assert reason_of(patched(WITH_CRC, field, form, value)) == reason


def test_negative_topic_length_of_the_second_version_is_refused():
    raw = records.encode(replace(PLAIN, magic=records.MAGIC_V2))
    assert reason_of(patched(raw, 88 + 17, ">h", -1)) == Reason.SIZE


def test_hosts_that_would_reach_beyond_the_record_are_refused():
    smallest = raw_record(0, topic=b"", body=b"")
    assert len(smallest) == records.MIN_RECORD_BYTES
    for sys_flag in (0x10, 0x20, 0x30):
        assert reason_of(patched(smallest, 36, ">i", sys_flag)) in (Reason.SIZE, Reason.HOST)


def test_unwritten_bytes_and_the_end_of_a_segment_are_told_apart():
    assert reason_of(b"") == Reason.END
    assert reason_of(bytes(4096)) == Reason.END
    assert reason_of(records.encode_blank(4096).ljust(4096, b"\0")) == Reason.BLANK
    assert records.encode_blank(4096) == bytes.fromhex("00001000cbd43194")


def test_a_record_that_belongs_elsewhere_is_refused_where_its_place_is_known():
    assert PLAIN.physical_offset == 0xE0C
    assert reason_of(WITH_CRC, physical_offset=0xE0D) == Reason.POSITION
    assert records.decode(WITH_CRC, physical_offset=0xE0C) == PLAIN


def test_an_error_names_the_place_and_the_reason():
    text = "^record at physical offset 77: claims to belong at 3596$"
    with pytest.raises(RecordError, match=text) as caught:
        records.decode(WITH_CRC, physical_offset=77)
    assert caught.value.physical_offset == 77


def test_a_size_above_the_bound_is_refused_though_the_bytes_are_there(monkeypatch):
    monkeypatch.setattr(limits, "MAX_RECORD_BYTES", len(WITH_CRC) - 1)
    assert reason_of(WITH_CRC) == Reason.SIZE


def test_malformed_utf8_reads_as_java_reads_it_and_properties_stay_bytes():
    raw = raw_record(0, topic=b"T\xe4\xb8", properties_bytes=b"a\x01\xed\xa0\x80\x02", body=b"")
    record = records.decode(raw)
    assert record.topic == "T\ufffd"
    assert record.properties == b"a\x01\xed\xa0\x80\x02"
    assert records.message_of(record).properties == {"a": "\ufffd"}


def test_a_body_of_no_bytes_needs_no_checksum():
    raw = patched(raw_record(0, body=b""), 8, ">i", 12345)
    assert records.decode(raw).body_crc == 12345


def test_a_memory_map_of_a_record_reads_like_bytes():
    assert records.decode(memoryview(bytearray(WITH_CRC))) == PLAIN
    assert isinstance(records.decode(memoryview(WITH_CRC)).body, bytes)


def test_host_flags_follow_the_hosts():
    for born, store, flags in [(V6, V6, 0x30), (V6, PLAIN.store_host, 0x10)]:
        record = replace(PLAIN, born_host=born, store_host=store, properties=b"")
        decoded = records.decode(records.encode(record))
        assert (decoded.born_host, decoded.store_host) == (born, store)
        assert decoded.sys_flag == flags
        assert records.encode(replace(record, sys_flag=0x30)) == records.encode(
            replace(record, sys_flag=flags)
        )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": "t" * 128}, Reason.SIZE),
        ({"topic": "t" * 32768, "magic": records.MAGIC_V2}, Reason.SIZE),
        ({"topic": "\udc80"}, Reason.SIZE),
        ({"properties": bytes(32768)}, Reason.SIZE),
        ({"flag": 2**31}, Reason.SIZE),
        ({"store_timestamp_ms": 2**63}, Reason.SIZE),
        ({"magic": records.MAGIC_BLANK}, Reason.MAGIC),
        ({"magic": 0}, Reason.MAGIC),
        ({"born_host": Host("1.2.3.4", 65536)}, Reason.HOST),
        ({"store_host": Host("1.2.3.4", -1)}, Reason.HOST),
    ],
)
def test_what_could_not_be_read_again_is_not_written(changes, reason):
    with pytest.raises(RecordError) as caught:
        records.encode(replace(PLAIN, **changes))
    assert caught.value.reason == reason


def test_properties_leave_room_for_the_checksum():
    longest = replace(PLAIN, properties=bytes(32767 - 21))
    assert len(records.decode(records.encode(longest, append_crc=True)).properties) == 32767
    with pytest.raises(RecordError):
        records.encode(replace(PLAIN, properties=bytes(32767 - 20)), append_crc=True)


@pytest.mark.parametrize("host", [Host("10.2.3.4", 40_000), V6, Host("::", 0)], ids=str)
def test_a_host_in_a_record_comes_back(host):
    assert records.unpack_host(records.pack_host(host)) == host


def test_a_body_that_cannot_be_unpacked_is_left_as_it_is_stored_and_the_reason_is_named():
    packed = zlib.compress(bytes(1000))
    for body, reason in ((b"no zlib", "not zlib"), (packed, "beyond 999 bytes")):
        record = replace(PLAIN, sys_flag=1, body=body)
        message = records.message_of(record, body_limit=999)
        assert message.body == body
        assert reason in message.body_error
    message = records.message_of(record, body_limit=1000)
    assert (message.body, message.body_error) == (bytes(1000), None)


def test_a_host_that_is_no_address_is_not_written():
    with pytest.raises(BadInput, match="broker-a"):
        records.encode(replace(PLAIN, store_host=Host("broker-a", 1)))


def test_a_message_without_a_unique_key_is_named_by_its_offset():
    message = records.message_of(PLAIN)
    assert message.unique_key is None
    assert message.msg_id == message.offset_msg_id == "0A01020300009C400000000000000E0C"
    assert (message.tags, message.keys) == ("t", ())


def test_a_view_has_the_numbers_and_the_parts_of_its_record():
    for raw, _ in record_vectors.all_records():
        record = records.decode(raw)
        view = records.RecordView(memoryview(raw))
        assert (view.body, view.topic, view.properties) == (
            record.body,
            record.topic,
            record.properties,
        )
        assert view.sys_flag == record.sys_flag
        for name in records._NUMBERS:
            assert view.number(name) == getattr(record, name)


KINDS = {"legacy zlib": 0x001, "LZ4": 0x101, "Zstandard": 0x201, "zlib": 0x301}
TEXT = ("the body 消息 " * 300).encode()
every_kind = pytest.mark.parametrize("sys_flag", KINDS.values(), ids=KINDS)


def zeros(sys_flag, length):
    """A small body that grows to ``length`` bytes, made without the bytes themselves."""
    step = bytes(1 << 20)
    if sys_flag == KINDS["LZ4"]:
        packer = lz4.frame.LZ4FrameCompressor()
        parts = [packer.begin()]
        parts += [packer.compress(step) for _ in range(length >> 20)]
        return b"".join([*parts, packer.flush()])
    if sys_flag == KINDS["Zstandard"]:
        stream = zstandard.ZstdCompressor(level=19).compressobj()
    else:
        stream = zlib.compressobj(9)
    return b"".join([stream.compress(step) for _ in range(length >> 20)] + [stream.flush()])


@every_kind
def test_a_body_comes_back(sys_flag):
    for body in (b"", b"x", TEXT, bytes(100_000)):
        assert compression.decompress(compression.compress(body, sys_flag), sys_flag) == body


def test_bodies_that_rocketmq_packed_are_unpacked():
    unpacked = [
        fields["body"].decode()
        for raw, fields in record_vectors.all_records()
        if fields["topic"] == "Packed"
    ]
    assert unpacked == ["the body 消息 " * 8] * 8


@pytest.mark.parametrize("sys_flag", [0, 0x2, 0x100, 0x300, 0x700])
def test_a_body_without_the_bit_is_left_as_it_is(sys_flag):
    assert compression.decompress(b"\x78\x9c no", sys_flag) == b"\x78\x9c no"
    assert compression.compress(TEXT, sys_flag) == TEXT


@pytest.mark.parametrize("sys_flag", [0x401, 0x501, 0x601, 0x701])
def test_an_unknown_compression_is_an_error(sys_flag):
    with pytest.raises(BodyError, match=f"{sys_flag:#x}"):
        compression.decompress(TEXT, sys_flag)
    with pytest.raises(BodyError, match=f"{sys_flag:#x}"):
        compression.compress(TEXT, sys_flag)


@every_kind
def test_a_body_of_exactly_the_limit_is_given_and_one_byte_more_is_an_error(sys_flag):
    packed = compression.compress(TEXT, sys_flag)
    assert compression.decompress(packed, sys_flag, len(TEXT)) == TEXT
    with pytest.raises(BodyError, match=f"grows beyond {len(TEXT) - 1} bytes"):
        compression.decompress(packed, sys_flag, len(TEXT) - 1)
    with pytest.raises(BodyError, match="grows beyond 0 bytes"):
        compression.decompress(packed, sys_flag, 0)


@every_kind
def test_a_bomb_stops_at_the_limit_before_its_memory_is_taken(sys_flag):
    bomb = zeros(sys_flag, 256 << 20)
    assert len(bomb) < 2 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with pytest.raises(BodyError, match="grows beyond"):
            compression.decompress(bomb, sys_flag, 1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert peak < 24 << 20
    assert grown < 64 << 10  # KiB


@every_kind
def test_a_body_too_large_to_keep_while_it_is_counted_comes_back_whole(sys_flag):
    packed = zeros(sys_flag, 17 << 20)
    assert compression.decompress(packed, sys_flag, 17 << 20) == bytes(17 << 20)


@every_kind
def test_every_prefix_of_a_packed_body_is_an_error(sys_flag):
    packed = compression.compress(TEXT[:500], sys_flag)
    for length in range(len(packed)):
        with pytest.raises(BodyError):
            compression.decompress(packed[:length], sys_flag)


@every_kind
def test_a_flipped_bit_gives_a_body_or_an_error_never_another_exception(sys_flag):
    packed = compression.compress(TEXT[:300], sys_flag)
    for position in range(len(packed)):
        for bit in range(8):
            changed = bytearray(packed)
            changed[position] ^= 1 << bit
            with suppress(BodyError):
                assert len(compression.decompress(bytes(changed), sys_flag, 1 << 20)) <= 1 << 20


@every_kind
def test_bytes_of_another_kind_are_an_error(sys_flag):
    for other in KINDS.values():
        same = {other, sys_flag} <= {KINDS["zlib"], KINDS["legacy zlib"]} or other == sys_flag
        if not same:
            with pytest.raises(BodyError):
                compression.decompress(compression.compress(TEXT, other), sys_flag)
    with pytest.raises(BodyError):
        compression.decompress(b"no packed body", sys_flag)
    with pytest.raises(BodyError):
        compression.decompress(b"", sys_flag)


@every_kind
def test_bytes_behind_a_packed_body_are_ignored_as_rocketmq_ignores_them(sys_flag):
    packed = compression.compress(TEXT, sys_flag)
    assert compression.decompress(packed + b"behind", sys_flag) == TEXT
