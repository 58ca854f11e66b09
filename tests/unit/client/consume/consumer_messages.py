"""Messages and records for tests of consumers."""

from rocketlens.formats import commitlog_record as records
from rocketlens.model import properties as props
from rocketlens.model.message import Host


def encoded(queue_offset, body=b"x", *, topic="T", queue_id=0, **named):
    """A stored record; names in lower case stand for properties."""
    properties = {name.upper(): value for name, value in named.items()}
    record = records.Record(
        total_size=0,
        magic=records.MAGIC_V1,
        body_crc=0,
        queue_id=queue_id,
        flag=0,
        queue_offset=queue_offset,
        physical_offset=1000 * queue_offset,
        sys_flag=0,
        born_timestamp_ms=1,
        born_host=Host("127.0.0.1", 1),
        store_timestamp_ms=2,
        store_host=Host("127.0.0.1", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic=topic,
        properties=props.format_properties(properties).encode(),
    )
    return records.encode(record)


def message(queue_offset, body=b"x", **named):
    return records.message_of(records.decode(encoded(queue_offset, body, **named)))
