"""The body of a batch send."""

import struct
import zlib

import pytest
from msgspec.structs import replace

from rocketlens.errors import FormatError
from rocketlens.formats import batch_body
from rocketlens.formats import commitlog_record as records
from rocketlens.formats.batch_body import BatchMember
from tests.support.made_stores import record_of, some_messages
from tests.unit.formats import record_vectors

MEMBERS = [
    BatchMember(0, b"", b""),
    BatchMember(-1, b"body", b"a\x01b\x02"),
    BatchMember(2**31 - 1, b"\0" * 300, b"TAGS\x01t"),
]


def test_a_batch_that_rocketmq_wrote_is_read_and_written_byte_for_byte():
    for line in record_vectors.lines_of("batch"):
        body = bytes.fromhex(line.split("\t")[1])
        members = list(batch_body.decode(body))
        assert [member.flag for member in members] == [-1, 0, 1]
        assert [member.body for member in members] == [b"", b"\0", b"\0\0"]
        assert batch_body.encode(members) == body


def test_the_broker_stores_each_member_as_a_record_with_its_flag_body_and_properties():
    body = bytes.fromhex(record_vectors.lines_of("batch")[0].split("\t")[1])
    stored = [records.decode(raw) for raw, fields in record_vectors.all_records()[:17]]
    stored = [record for record in stored if record.topic == "Batch"]
    assert [(one.flag, one.body, one.properties) for one in stored] == list(batch_body.decode(body))


def test_members_come_back_in_order():
    assert list(batch_body.decode(batch_body.encode(MEMBERS))) == MEMBERS
    assert list(batch_body.decode(memoryview(batch_body.encode(MEMBERS)))) == MEMBERS
    assert list(batch_body.decode(b"")) == []


def test_every_prefix_gives_the_members_before_it_and_then_an_error():
    whole = batch_body.encode(MEMBERS)
    ends = [len(batch_body.encode(MEMBERS[:count])) for count in range(len(MEMBERS) + 1)]
    for length in range(len(whole)):
        read = []
        if length in ends:
            assert list(batch_body.decode(whole[:length])) == MEMBERS[: ends.index(length)]
            continue
        with pytest.raises(FormatError, match="batch"):
            read.extend(batch_body.decode(whole[:length]))
        # What came before the damage was given already.
        members = batch_body.decode(whole[:length])
        count = sum(end <= length for end in ends) - 1
        assert [next(members) for _ in range(count)] == MEMBERS[:count]


def test_a_flipped_bit_gives_members_or_an_error_and_never_more_bytes_than_there_are():
    whole = batch_body.encode(MEMBERS[:2])
    for position in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[position] ^= 1 << bit
            try:
                members = list(batch_body.decode(bytes(changed)))
            except FormatError:
                continue
            assert len(batch_body.encode(members)) == len(whole)


@pytest.mark.parametrize(
    ("total_size", "body_length", "properties_length"),
    [
        *[(22, -1, 0), (-1, 0, 0), (0, 0, 0), (21, 0, 0), (22, 1, 0), (22, 0, 1), (22, 0, -1)],
        *[(2**31 - 1, 0, 0), (22, 2**31 - 1, 0), (-(2**31), 2**31 - 1, 0), (23, 0, 0)],
    ],
)
def test_sizes_that_do_not_add_up_are_an_error(total_size, body_length, properties_length):
    body = struct.pack(">iiiiih", total_size, 0, 0, 0, body_length, properties_length)
    with pytest.raises(FormatError):
        list(batch_body.decode(body + bytes(8)))


@pytest.mark.parametrize(
    "member",
    [
        BatchMember(0, b"", bytes(32768)),
        BatchMember(2**31, b"", b""),
        BatchMember(-(2**31) - 1, b"", b""),
    ],
)
def test_a_member_that_does_not_fit_its_fields_is_not_written(member):
    with pytest.raises(FormatError, match="batch member 1 cannot be written"):
        batch_body.encode([MEMBERS[0], member])


def batch_of(members, sys_flag=0xC0, body=None):
    record, _ = record_of(some_messages(1)[0], 1 << 40, 7)
    body = batch_body.encode(members) if body is None else body
    return replace(record, sys_flag=sys_flag, body=body, queue_offset=7)


def test_a_record_that_is_a_batch_has_a_message_for_each_member():
    members = [BatchMember(n, b"body %d" % n, b"KEYS\x01k%d" % n) for n in range(3)]
    batch = batch_of(members)
    found = batch_body.records_in(batch)
    assert [each.queue_offset for each in found] == [7, 8, 9]
    assert [(each.flag, each.body, each.properties) for each in found] == members
    assert {(each.physical_offset, each.total_size, each.sys_flag) for each in found} == {
        (batch.physical_offset, batch.total_size, 0)
    }
    assert [each.body_crc for each in found] == [
        zlib.crc32(each.body) & 0x7FFFFFFF for each in members
    ]
    compressed = replace(batch, sys_flag=0xC1, body=zlib.compress(batch.body))
    assert batch_body.records_in(compressed) == found


def test_other_records_and_batches_that_cannot_be_taken_apart_are_one_message():
    members = [BatchMember(0, b"body", b"")]
    assert batch_body.records_in(batch_of(members, sys_flag=0x40)) == ()
    assert batch_body.records_in(batch_of(members, body=batch_body.encode(members)[:-1])) == ()
    assert batch_body.records_in(batch_of(members, sys_flag=0xC1)) == ()
