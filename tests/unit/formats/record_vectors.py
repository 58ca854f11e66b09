"""Records that RocketMQ's store wrote, with what RocketMQ's decoder reads in them.

Made by ``tests/peer/test_java_records.py``: V1 and V2, IPv4 and IPv6, each compression, batch
members; the second half with the checksum of the whole record.
"""

from ipaddress import ip_address
from pathlib import Path

from rocketlens.formats import body_compression
from rocketlens.formats import commitlog_record as records

VECTORS = Path(__file__).parent / "java_record_vectors.txt"
NUMBERS = (
    *("body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag"),
    *("born_timestamp_ms", "store_timestamp_ms", "reconsume_times"),
    *("prepared_transaction_offset", "store_size"),
)


def parse(line):
    """Bytes of the record, and its fields as RocketMQ reads them."""
    _, raw, topic, *rest = line.split("\t")
    count = len(NUMBERS)
    born, store, offset_msg_id, body, *properties = rest[count:]
    expected = dict(zip(NUMBERS, map(int, rest[:count]), strict=True)) | {
        "topic": topic,
        "born_host": host(born),
        "store_host": host(store),
        "offset_msg_id": offset_msg_id,
        "body": bytes.fromhex(body),
        "properties": dict(bytes.fromhex(one).decode().split("=", 1) for one in properties),
    }
    return bytes.fromhex(raw), expected


def host(text):
    """Java writes IPv6 addresses at full length."""
    address, port = text.split()
    return str(ip_address(address)), int(port)


def fields_of(record):
    """The same of a record that we read.

    RocketMQ 5 takes the bit "compressed" off a message whose body it decompressed; ours stays.
    """
    message = records.message_of(record)
    names = (*NUMBERS, "topic", "born_host", "store_host", "offset_msg_id", "body", "properties")
    values = {name: getattr(message, name) for name in names}
    return values | {"sys_flag": message.sys_flag & ~body_compression.COMPRESSED}


def lines_of(kind):
    """All lines that begin with ``kind``, without their end."""
    lines = VECTORS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith(f"{kind}\t")]


def all_records():
    """Every record with its fields."""
    return [parse(line) for line in lines_of("record")]
