"""Topics: their configuration (351, 21), and a broker's registration of all (103).

A plain registration is the JSON of a RegisterBrokerBody; brokers older than 3.0.11 send its
``topicConfigSerializeWrapper`` alone. Compressed it is one zlib stream of:

=========  =====================================================================================
type       field
=========  =====================================================================================
i32+n      dataVersion, JSON
i32        number of topics
i32+n      each topic: ``topicName readQueueNums writeQueueNums perm topicFilterType``, with
           blanks between; 5.x adds the attributes as JSON, if there are any
i32+n      filterServerList, JSON
i32        5.x: number of static topic mappings, and then each as i32+n JSON
=========  =====================================================================================

All integers big endian. Drawbacks to know: the topics' other fields (topicSysFlag, order) are not
in it. Source: ``RegisterBrokerBody``, ``TopicConfig.encode``.
"""

import struct
import zlib
from collections.abc import Mapping
from enum import Enum
from typing import Final

from rocketlens import limits
from rocketlens.errors import CommandBodyError
from rocketlens.model.text.json_dialect import loads
from rocketlens.wire.codes import V5_0_0, version_number
from rocketlens.wire.declare import (
    BOOLEAN,
    I32,
    I64,
    TEXT,
    array_of,
    declare,
    enum_of,
    map_of,
    member,
    object_of,
    read_body,
    read_i32,
)

V3_0_11: Final = version_number("V3_0_11")
LENGTH: Final = struct.Struct(">i")


class TopicFilterType(Enum):
    """Whether a message may have one tag or many; brokers treat them alike."""

    SINGLE_TAG = 0
    MULTI_TAG = 1


@declare("DataVersion")
class DataVersion:
    """The version of a table; it changes with every change of the table."""

    counter: int = member("counter", I64, default=0)
    state_version: int = member("stateVersion", I64, default=0, since=V5_0_0)
    timestamp_ms: int = member("timestamp", I64, default=0)


@declare("TopicConfig")
class TopicConfig:
    """A topic on one broker. ``perm``: 4 read, 2 write, 1 inherit."""

    topic_name: str = member("topicName", TEXT)
    read_queue_nums: int = member("readQueueNums", I32, default=16)
    write_queue_nums: int = member("writeQueueNums", I32, default=16)
    perm: int = member("perm", I32, default=6)
    topic_filter_type: TopicFilterType = member(
        "topicFilterType", enum_of(TopicFilterType), default=TopicFilterType.SINGLE_TAG
    )
    topic_sys_flag: int = member("topicSysFlag", I32, default=0)
    """1 unit, 2 unit subscription."""
    order: bool = member("order", BOOLEAN, default=False)
    attributes: Mapping[str, str] | None = member(
        "attributes", map_of(TEXT, TEXT), default=None, since=V5_0_0
    )


@declare("TopicConfigSerializeWrapper")
class TopicConfigTable:
    """All topics of a broker."""

    data_version: DataVersion = member("dataVersion", object_of(DataVersion), default=DataVersion())
    topic_config_table: Mapping[str, TopicConfig] = member(
        "topicConfigTable", map_of(TEXT, object_of(TopicConfig)), default_factory=dict
    )


@declare("RegisterBrokerBody")
class RegisterBrokerBody:
    """A broker's registration at a name server."""

    topic_config_table: TopicConfigTable = member(
        "topicConfigSerializeWrapper", object_of(TopicConfigTable), default=TopicConfigTable()
    )
    filter_server_list: tuple[str, ...] = member("filterServerList", array_of(TEXT), default=())


def decode_registration(
    content: bytes, *, compressed: bool = False, version: int = V3_0_11
) -> RegisterBrokerBody:
    """Parse a registration; ``version`` is that of its command.

    :raises CommandBodyError: if it is invalid, or decompressed over MAX_JSON_BODY_BYTES.
    """
    if not content:
        return RegisterBrokerBody()
    if version < V3_0_11:
        return RegisterBrokerBody(topic_config_table=read_body(TopicConfigTable, content))
    if compressed:
        return _Parts(_inflate(content)).read()
    return read_body(RegisterBrokerBody, content)


def _inflate(content: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(content, limits.MAX_JSON_BODY_BYTES)
    except zlib.error as error:
        raise CommandBodyError(f"a registration cannot be decompressed: {error}") from None
    if not stream.eof:
        raise CommandBodyError(
            "a compressed registration that is cut short, or over "
            f"{limits.MAX_JSON_BODY_BYTES} bytes"
        )
    return plain


class _Parts:
    """Reads the parts of a compressed registration one after another."""

    def __init__(self, plain: bytes) -> None:
        self.plain = plain
        self.cursor = 0

    def read(self) -> RegisterBrokerBody:
        version = read_body(DataVersion, self._part())
        topics: dict[str, TopicConfig] = {}
        for _ in range(self._number()):
            topic = _topic_of(self._part())
            topics[topic.topic_name] = topic
        servers = loads(self._part(), CommandBodyError)
        if type(servers) is not list or not all(type(each) is str for each in servers):
            raise CommandBodyError(
                "the filter servers of a registration are not a list of addresses"
            )
        # In 5.x static topic mappings follow; clients do not ask a name server for them.
        return RegisterBrokerBody(
            topic_config_table=TopicConfigTable(data_version=version, topic_config_table=topics),
            filter_server_list=tuple(servers),
        )

    def _number(self) -> int:
        """Read a count or length, which cannot be more than the remaining bytes."""
        if len(self.plain) - self.cursor < LENGTH.size:
            raise CommandBodyError("a compressed registration ends too early")
        number: int = LENGTH.unpack_from(self.plain, self.cursor)[0]
        self.cursor += LENGTH.size
        if not 0 <= number <= len(self.plain) - self.cursor:
            raise CommandBodyError(f"a compressed registration has a length of {number}")
        return number

    def _part(self) -> bytes:
        start = self.cursor + LENGTH.size
        self.cursor = start + self._number()
        return self.plain[start : self.cursor]


def _topic_of(encoded: bytes) -> TopicConfig:
    try:
        fields = encoded.decode().split(" ")
        name, read_queue_nums, write_queue_nums, perm, filter_type = fields[:5]
        return TopicConfig(
            topic_name=name,
            read_queue_nums=read_i32(read_queue_nums),
            write_queue_nums=read_i32(write_queue_nums),
            perm=read_i32(perm),
            topic_filter_type=TopicFilterType[filter_type],
        )
    except (ValueError, KeyError) as error:
        raise CommandBodyError(f"a topic of a compressed registration: {error}") from None
