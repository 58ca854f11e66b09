"""What real brokers wrote, read and written again: the same bytes.

Each test reads a store as it was after a clean end and as it was copied from a running broker.
"""

import json
from contextlib import suppress

import pytest

from rocketlens.errors import ConfigError, RecordError
from rocketlens.formats import checkpoint, consumequeue_entry, index_file
from rocketlens.formats import commitlog_record as records
from rocketlens.formats.index_file import Geometry, infer_geometry
from rocketlens.model import properties as props
from rocketlens.model.message_id import OffsetMessageId, UniqueKey
from rocketlens.model.text import json_dialect
from rocketlens.model.text.java import decode_utf8, string_hash

VERSIONS = ("4.9.7", "5.5.0")
TABLE_SIZES = {"4.9.7": 16, "5.5.0": 128}
GEOMETRY = Geometry(500, 1000)
BEHIND_EACH_MEMBER = "\x02CLUSTER\x01DefaultCluster\x02WAIT\x01true"

every_version = pytest.mark.parametrize("version", VERSIONS)
both_states = pytest.mark.parametrize("state", ["store", "crashed"])


def log_of(store):
    """Every record of a store with its bytes; the log must end as logs end."""
    for path in sorted((store / "commitlog").iterdir()):
        content = path.read_bytes()
        position = 0
        reason = None
        while reason is None:
            offset = int(path.name) + position
            try:
                record = records.decode(content, position, physical_offset=offset)
            except RecordError as error:
                reason = error.reason
            else:
                yield content[position : position + record.total_size], record
                position += record.total_size
        assert reason in (records.Reason.END, records.Reason.BLANK)
        if reason == records.Reason.BLANK:
            left = len(content) - position
            assert content[position : position + 8] == records.encode_blank(left)


@every_version
@both_states
def test_every_record_is_written_as_it_was_read(golden, version, state):
    count = 0
    for raw, record in log_of(getattr(golden(version), state)):
        assert records.encode(record) == raw
        count += 1
    assert count > 1800


@every_version
@both_states
def test_every_property_string_is_written_as_it_was_read(golden, version, state):
    trailing = version == "5.5.0"
    for _, record in log_of(getattr(golden(version), state)):
        text = decode_utf8(record.properties)
        # 4.9 puts the properties of a whole batch behind those of each member, so WAIT repeats.
        text = text.replace(BEHIND_EACH_MEMBER, "\x02CLUSTER\x01DefaultCluster")
        assert props.format_properties(props.parse(text), trailing_separator=trailing) == text


def in_reverse(properties, table_size):
    """From the last bucket to the first; names of one bucket in the order they were put in."""

    def bucket(name):
        hashed = string_hash(name) & 0xFFFFFFFF
        return (hashed ^ hashed >> 16) & (table_size - 1)

    return {name: properties[name] for name in sorted(properties, key=bucket, reverse=True)}


@every_version
def test_properties_of_single_messages_stand_in_the_order_of_the_brokers_table(golden, version):
    table_size = TABLE_SIZES[version]
    batched = {one["msg_id"] for one in golden(version).sent if one["kind"] == "batch"}
    seen = 0
    for _, record in log_of(golden(version).store):
        properties = props.parse(decode_utf8(record.properties))
        if properties.get("UNIQ_KEY") in batched or record.topic in (
            # Written by the broker for itself, from a map of another size.
            *("RMQ_SYS_TRANS_OP_HALF_TOPIC", "OFFSET_MOVED_EVENT"),
        ):
            continue
        ordered = props.java_order(in_reverse(properties, table_size), table_size)
        assert list(ordered) == list(properties)
        written = props.format_properties(ordered, trailing_separator=version == "5.5.0")
        assert written.encode() == record.properties
        seen += 1
    assert seen > 1600


@every_version
def test_properties_of_batch_members_stand_as_the_producer_wrote_them(golden, version):
    members = {one["msg_id"]: one for one in golden(version).sent if one["kind"] == "batch"}
    seen = 0
    for _, record in log_of(golden(version).store):
        properties = props.parse(decode_utf8(record.properties))
        if properties.get("UNIQ_KEY") in members:
            behind = BEHIND_EACH_MEMBER.encode() if version == "4.9.7" else b"\x02"
            assert record.properties.endswith(behind)
            assert list(properties)[4:] == (["CLUSTER"] if version == "4.9.7" else [])
            sent = dict(list(properties.items())[:4])
            assert list(props.java_order(sent, 16)) == list(sent)
            seen += 1
    assert seen == len(members) > 100


@every_version
@both_states
def test_every_queue_entry_is_written_as_it_was_read(golden, version, state):
    real = 0
    for path in (getattr(golden(version), state) / "consumequeue").rglob("0" * 20):
        content = path.read_bytes()
        for position in range(0, len(content), consumequeue_entry.ENTRY_BYTES):
            entry = consumequeue_entry.decode(content, position)
            assert entry.encode() == content[position : position + 20]
            assert entry.is_end == (content[position + 8 : position + 12] == bytes(4))
            real += not entry.is_end
    assert real > 1700


@every_version
@both_states
def test_every_index_file_is_understood_from_its_content_and_written_as_it_was_read(
    golden, version, state
):
    paths = sorted((getattr(golden(version), state) / "index").iterdir())
    assert len(paths) > 4
    for path in paths:
        content = path.read_bytes()
        assert infer_geometry(content) == GEOMETRY
        header = index_file.decode_header(content)
        assert header.encode() == content[:40]
        for number in range(GEOMETRY.entry_count):
            entry = index_file.decode_entry(content, GEOMETRY, number)
            start = GEOMETRY.entry_position(number)
            assert entry.encode() == content[start : start + 20]
            assert (entry.key_hash > 0) == (1 <= number <= header.last_entry)


@every_version
@both_states
def test_the_checkpoint_is_written_as_it_was_read(golden, version, state):
    content = (getattr(golden(version), state) / "checkpoint").read_bytes()
    fields = checkpoint.decode(content)
    assert fields.encode() == content
    assert fields.physic_msg_timestamp_ms > 1_700_000_000_000


@every_version
@both_states
def test_every_config_file_is_written_as_it_was_read(golden, version, state):
    seen = 0
    for path in sorted((getattr(golden(version), state) / "config").iterdir()):
        if path.name == "timercheck":
            continue  # not JSON: the checkpoint of RocketMQ 5's timer
        content = path.read_bytes()
        value = json_dialect.loads_file(content, integer_keys=True)
        # What is kept in memory between two reports is written without line breaks.
        is_compact = path.name.startswith(("timermetrics", "transactionMetrics"))
        written = json_dialect.dumps_file(value)
        assert json_dialect.loads_file(written, integer_keys=True) == value
        # 4.9 leaves integer names on the line of what is before them.
        assert is_compact or version == "4.9.7" or written.encode() == content, path.name
        # As plain JSON it says the same, with the integers as text.
        plain = json_dialect.dumps(value)
        assert json.loads(plain) == json_dialect.loads_file(content)
        seen += 1
    assert seen >= 9


@every_version
def test_config_files_hold_what_mqadmin_shows(golden, version):
    config = golden(version).store / "config"
    topics = json_dialect.loads_file((config / "topics.json").read_bytes())["topicConfigTable"]
    assert {one["topic"] for one in golden(version).sent} <= set(topics)
    offsets = json_dialect.loads_file((config / "consumerOffset.json").read_bytes())["offsetTable"]
    assert set(offsets["PayTopic@golden_cg"]) == {"0", "1", "2", "3"}
    delays = json_dialect.loads_file((config / "delayOffset.json").read_bytes())["offsetTable"]
    assert {"1", "3"} <= set(delays)


@every_version
def test_every_prefix_and_flipped_byte_of_a_config_file_is_a_value_or_a_config_error(
    golden, version
):
    content = (golden(version).store / "config" / "consumerOffset.json").read_bytes()
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        for damaged in (content[:position], bytes(changed)):
            with suppress(ConfigError):
                json_dialect.loads_file(damaged)


@every_version
def test_every_prefix_and_flipped_byte_of_real_records_is_refused_or_changes_one_field(
    golden, version
):
    for raw, record in list(log_of(golden(version).store))[::211]:
        for position in range(len(raw)):
            with pytest.raises(RecordError):
                records.decode(raw[:position])
            changed = bytearray(raw)
            changed[position] ^= 0x81
            try:
                read = records.decode(bytes(changed))
            except RecordError:
                continue
            differing = [
                name for name in record.__slots__ if getattr(read, name) != getattr(record, name)
            ]
            assert len(differing) == 1, position


def with_offset_id(golden_store):
    """All but transactions, whose sender is told no offset id."""
    sent = [one for one in golden_store.sent if one["offset_msg_id"]]
    assert len(golden_store.sent) - len(sent) == 12
    return sent


@every_version
def test_every_id_that_was_sent_is_read_and_written_again(golden, version):
    hosts, counters = set(), []
    for one in with_offset_id(golden(version)):
        offset_id = OffsetMessageId.decode(one["offset_msg_id"])
        assert offset_id.encode() == one["offset_msg_id"]
        assert OffsetMessageId.decode(one["offset_msg_id"].lower()) == offset_id
        hosts.add(str(offset_id.store_host))
        key = UniqueKey.decode(one["msg_id"])
        assert key.encode() == one["msg_id"]
        counters.append(key.counter)
    assert hosts == {"127.0.0.1:41911" if version == "4.9.7" else "127.0.0.1:51911"}
    assert len(set(counters)) > len(counters) * 0.9


@every_version
def test_every_offset_id_that_was_sent_is_where_the_record_of_that_unique_key_is(golden, version):
    by_offset = {record.physical_offset: record for _, record in log_of(golden(version).store)}
    for one in with_offset_id(golden(version)):
        record = by_offset[OffsetMessageId.decode(one["offset_msg_id"]).physical_offset]
        message = records.message_of(record)
        assert (message.unique_key, message.offset_msg_id) == (one["msg_id"], one["offset_msg_id"])


@every_version
def test_unique_keys_were_made_when_their_messages_were_born(golden, version):
    for _, record in log_of(golden(version).store):
        message = records.message_of(record)
        if message.unique_key and not message.reconsume_times:
            guess = UniqueKey.decode(message.unique_key).nearly_time_ms(
                message.store_timestamp_ms + 60_000
            )
            # The born time is taken right after the key, but anew for each later copy.
            assert 0 <= message.born_timestamp_ms - guess < 60_000
