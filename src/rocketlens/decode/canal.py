"""Reads Canal's packets: changes of MySQL tables, as its server sends them to message queues.

::

    Packet ─ body ─▶ Messages ─ messages ─▶ Entry ─ storeValue ─▶ RowChange ─▶ rows, columns

A message of a queue holds a packet. All are Protocol Buffers; the type of a packet gives the kind
of its ``body``, and the type of an entry that of its ``storeValue``. Source: ``CanalPacket.proto``,
``CanalEntry.proto``.
"""

from typing import Final

from rocketlens.decode.byte_reader import DecodingWork
from rocketlens.decode.protobuf import read_protobuf, schemas_of
from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError

_SCHEMAS: Final = schemas_of("""
    message Pair { text key = 1; text value = 2; }

    enum PacketType { HANDSHAKE CLIENTAUTHENTICATION ACK SUBSCRIPTION UNSUBSCRIPTION GET MESSAGES
        CLIENTACK SHUTDOWN DUMP HEARTBEAT CLIENTROLLBACK }
    enum Compression { NONE ZLIB GZIP LZF }
    message Packet { int magic_number = 1; int version = 2; PacketType type = 3;
        Compression compression = 4; bytes body = 5; }
    message Messages { int batch_id = 1; repeated bytes messages = 2; }

    enum Source { ORACLE MYSQL PGSQL }
    enum EventType { INSERT UPDATE DELETE CREATE ALTER ERASE QUERY TRUNCATE RENAME CINDEX DINDEX
        GTID XACOMMIT XAROLLBACK MHEARTBEAT }
    message Header { int version = 1; text logfileName = 2; int logfileOffset = 3; int serverId = 4;
        text serverenCode = 5; int executeTime = 6; Source sourceType = 7; text schemaName = 8;
        text tableName = 9; int eventLength = 10; EventType eventType = 11;
        repeated Pair props = 12; text gtid = 13; }
    enum EntryType { TRANSACTIONBEGIN ROWDATA TRANSACTIONEND HEARTBEAT GTIDLOG }
    message Entry { Header header = 1; EntryType entryType = 2; bytes storeValue = 3; }

    message Column { int index = 1; int sqlType = 2; text name = 3; bool isKey = 4;
        bool updated = 5; bool isNull = 6; repeated Pair props = 7; text value = 8;
        int length = 9; text mysqlType = 10; }
    message Row { repeated Column beforeColumns = 1; repeated Column afterColumns = 2;
        repeated Pair props = 3; }
    message ROWDATA { int tableId = 1; EventType eventType = 2; bool isDdl = 10; text sql = 11;
        repeated Row rowDatas = 12; repeated Pair props = 13; text ddlSchemaName = 14; }
    message TRANSACTIONBEGIN { int executeTime = 1; text transactionId = 2;
        repeated Pair props = 3; int threadId = 4; }
    message TRANSACTIONEND { int executeTime = 1; text transactionId = 2; repeated Pair props = 3; }
""")
"""Messages by name; the content of an entry is named like the entry's type."""
_STORED: Final = ("TRANSACTIONBEGIN", "ROWDATA", "TRANSACTIONEND")


def read_canal(body: bytes, work: DecodingWork | None = None) -> Tree:
    """Return a packet of messages, with its entries and their rows."""
    work = work or DecodingWork()
    packet = read_protobuf(body, work, schema=_SCHEMAS["Packet"])
    inner = packet.get("body")
    if packet.get("compression", "NONE") not in ("NONE", 0):
        raise BodyError(f"its messages are compressed: {packet['compression']}")
    if packet.get("type") != "MESSAGES" or not isinstance(inner, bytes):
        raise BodyError(f"it is not a packet of messages: type {packet.get('type')!r:.40}")
    messages = read_protobuf(inner, work, schema=_SCHEMAS["Messages"])
    entries = [_entry(each, work) for each in messages.pop("messages", [])]
    return {**packet, "body": {**messages, "messages": entries}}


def _entry(stored: Tree, work: DecodingWork) -> Tree:
    if not isinstance(stored, bytes):
        raise BodyError("an entry that is a number")
    entry = read_protobuf(stored, work, schema=_SCHEMAS["Entry"])
    entry_type = entry.get("entryType", "ROWDATA")
    value = entry.get("storeValue")
    # A damaged entry can have several types.
    if entry_type in _STORED and isinstance(value, bytes):
        entry["storeValue"] = read_protobuf(value, work, schema=_SCHEMAS[entry_type])
    return entry
