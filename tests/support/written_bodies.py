"""Bodies that other libraries wrote; java/shop/WriteBodies.java wrote them, and says how."""

from pathlib import Path

from rocketlens.model.message import Host, MessageExt

DIRECTORY = Path(__file__).parents[1] / "unit" / "decode" / "bodies"
NAMES = sorted(each.name for each in DIRECTORY.iterdir() if each.is_file())


def body(name):
    return (DIRECTORY / name).read_bytes()


def message(topic="T", body=b"", properties=(), body_error=None):
    """Return a stored message with this body."""
    here = Host("127.0.0.1", 10911)
    return MessageExt(
        topic=topic,
        tags=None,
        keys=(),
        unique_key=None,
        msg_id="0" * 32,
        offset_msg_id="0" * 32,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        store_size=100,
        sys_flag=0,
        flag=0,
        body_crc=0,
        born_timestamp_ms=0,
        born_host=here,
        store_timestamp_ms=0,
        store_host=here,
        reconsume_times=0,
        prepared_transaction_offset=0,
        properties=dict(properties),
        body=body,
        body_error=body_error,
    )
