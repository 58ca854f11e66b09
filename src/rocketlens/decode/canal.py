"""Canal's packets: changes of MySQL tables, as its server sends them to message queues.

::

    Packet ─ body ─▶ Messages ─ messages ─▶ Entry ─ storeValue ─▶ RowChange ─▶ rows, columns

A message of a queue holds a packet. All are Protocol Buffers; a packet's ``body`` is a message of
another kind by its type, and an entry's ``storeValue`` by the entry's. Source:
``CanalPacket.proto``, ``CanalEntry.proto``.
"""

from typing import Final

from rocketlens.decode.byte_reader import DecodingWork
from rocketlens.decode.protobuf import ProtobufField, Schema, read_protobuf
from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError


def _numbered(names: str) -> dict[int, str]:
    """Return the names of an enum's numbers, which begin at 1."""
    return dict(enumerate(names.split(), 1))


_PAIR: Final[Schema] = {1: ProtobufField("key", "text"), 2: ProtobufField("value", "text")}
_PACKET_TYPES: Final = _numbered(
    "HANDSHAKE CLIENTAUTHENTICATION ACK SUBSCRIPTION UNSUBSCRIPTION GET MESSAGES "
    "CLIENTACK SHUTDOWN DUMP HEARTBEAT CLIENTROLLBACK"
)
_MESSAGES: Final = "MESSAGES"
_PACKET: Final[Schema] = {
    1: ProtobufField("magic_number"),
    2: ProtobufField("version"),
    3: ProtobufField("type", values=_PACKET_TYPES),
    4: ProtobufField("compression", values=_numbered("NONE ZLIB GZIP LZF")),
    5: ProtobufField("body", "bytes"),
}
_EVENT_TYPES: Final = _numbered(
    "INSERT UPDATE DELETE CREATE ALTER ERASE QUERY TRUNCATE RENAME CINDEX DINDEX GTID "
    "XACOMMIT XAROLLBACK MHEARTBEAT"
)
_HEADER: Final[Schema] = {
    1: ProtobufField("version"),
    2: ProtobufField("logfileName", "text"),
    3: ProtobufField("logfileOffset"),
    4: ProtobufField("serverId"),
    5: ProtobufField("serverenCode", "text"),
    6: ProtobufField("executeTime"),
    7: ProtobufField("sourceType", values=_numbered("ORACLE MYSQL PGSQL")),
    8: ProtobufField("schemaName", "text"),
    9: ProtobufField("tableName", "text"),
    10: ProtobufField("eventLength"),
    11: ProtobufField("eventType", values=_EVENT_TYPES),
    12: ProtobufField("props", _PAIR, is_list=True),
    13: ProtobufField("gtid", "text"),
}
_ROW_DATA: Final = "ROWDATA"
_ENTRY_TYPES: Final = _numbered("TRANSACTIONBEGIN ROWDATA TRANSACTIONEND HEARTBEAT GTIDLOG")
_ENTRY: Final[Schema] = {
    1: ProtobufField("header", _HEADER),
    2: ProtobufField("entryType", values=_ENTRY_TYPES),
    3: ProtobufField("storeValue", "bytes"),
}
_COLUMN: Final[Schema] = {
    1: ProtobufField("index"),
    2: ProtobufField("sqlType"),
    3: ProtobufField("name", "text"),
    4: ProtobufField("isKey", "bool"),
    5: ProtobufField("updated", "bool"),
    6: ProtobufField("isNull", "bool"),
    7: ProtobufField("props", _PAIR, is_list=True),
    8: ProtobufField("value", "text"),
    9: ProtobufField("length"),
    10: ProtobufField("mysqlType", "text"),
}
_ROW: Final[Schema] = {
    1: ProtobufField("beforeColumns", _COLUMN, is_list=True),
    2: ProtobufField("afterColumns", _COLUMN, is_list=True),
    3: ProtobufField("props", _PAIR, is_list=True),
}
_ROW_CHANGE: Final[Schema] = {
    1: ProtobufField("tableId"),
    2: ProtobufField("eventType", values=_EVENT_TYPES),
    10: ProtobufField("isDdl", "bool"),
    11: ProtobufField("sql", "text"),
    12: ProtobufField("rowDatas", _ROW, is_list=True),
    13: ProtobufField("props", _PAIR, is_list=True),
    14: ProtobufField("ddlSchemaName", "text"),
}
_TRANSACTION: Final[Schema] = {
    1: ProtobufField("executeTime"),
    2: ProtobufField("transactionId", "text"),
    3: ProtobufField("props", _PAIR, is_list=True),
    4: ProtobufField("threadId"),
}
_TRANSACTION_END: Final[Schema] = {
    1: ProtobufField("executeTime"),
    2: ProtobufField("transactionId", "text"),
    3: ProtobufField("props", _PAIR, is_list=True),
}
_STORED: Final[dict[str, Schema]] = {
    "TRANSACTIONBEGIN": _TRANSACTION,
    _ROW_DATA: _ROW_CHANGE,
    "TRANSACTIONEND": _TRANSACTION_END,
}
_OF_MESSAGES: Final[Schema] = {
    1: ProtobufField("batch_id"),
    2: ProtobufField("messages", "bytes", is_list=True),
}


def read_canal(body: bytes, work: DecodingWork | None = None) -> Tree:
    """Return a packet with its entries and their rows.

    :raises BodyError: when it is not a packet of messages.
    """
    work = work or DecodingWork()
    packet = read_protobuf(body, work, schema=_PACKET)
    inner = packet.get("body")
    if packet.get("compression", "NONE") not in ("NONE", 0):
        raise BodyError(f"its messages are compressed: {packet['compression']}")
    if packet.get("type") != _MESSAGES or not isinstance(inner, bytes):
        raise BodyError(f"it is no packet of messages: type {packet.get('type')!r:.40}")
    messages = read_protobuf(inner, work, schema=_OF_MESSAGES)
    entries = [_entry(each, work) for each in messages.pop("messages", [])]
    return {**packet, "body": {**messages, "messages": entries}}


def _entry(stored: Tree, work: DecodingWork) -> Tree:
    if not isinstance(stored, bytes):
        raise BodyError("an entry that is a number")
    entry = read_protobuf(stored, work, schema=_ENTRY)
    entry_type = entry.get("entryType", _ROW_DATA)
    # A damaged entry can have several types.
    schema = _STORED.get(entry_type) if isinstance(entry_type, str) else None
    value = entry.get("storeValue")
    if schema is not None and isinstance(value, bytes):
        entry["storeValue"] = read_protobuf(value, work, schema=schema)
    return entry
