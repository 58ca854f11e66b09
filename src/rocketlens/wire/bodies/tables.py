"""Routes, topics, groups and offsets of queues: the tables of name servers and brokers.

A plain registration (103) is the JSON of a RegisterBrokerBody; brokers older than 3.0.11 send only
its ``topicConfigSerializeWrapper``. Compressed it is one zlib stream of:

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

All integers are big-endian. Drawback: it lacks the topics' other fields (topicSysFlag, order).
Source: ``RegisterBrokerBody``, ``TopicConfig.encode``.
"""

import struct
import zlib
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from msgspec import field

from rocketlens import limits
from rocketlens.errors import CommandBodyError
from rocketlens.model.text.json_dialect import loads
from rocketlens.wire.bodies.static_topics import QueueMapping
from rocketlens.wire.codes import version_number
from rocketlens.wire.declare import I32, I64, WireStruct, read_body, read_i32


class MessageQueue(NamedTuple):
    """One queue of a topic on the brokers of one name; printed as RocketMQ prints it."""

    topic: str
    broker_name: str
    queue_id: I32

    def __str__(self) -> str:
        return (
            f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, "
            f"queueId={self.queue_id}]"
        )


class TopicOffset(WireStruct):
    """Offsets of a queue: the first one, the next one, and the time of the last message."""

    min_offset: I64 = 0
    max_offset: I64 = 0
    last_update_timestamp_ms: I64 = 0


class TopicStatsTable(WireStruct):
    """All queues of a topic on one broker."""

    offset_table: Mapping[MessageQueue, TopicOffset] = {}
    topic_put_tps: float | None = None


class BrokerStatsItem(WireStruct):
    """A broker's count over a period."""

    sum: I64 = 0
    per_second: float = field(name="tps", default=0.0)
    per_put: float = field(name="avgpt", default=0.0)


class BrokerStatsData(WireStruct):
    """A broker's count over the last minute, hour and day."""

    minute: BrokerStatsItem = field(name="statsMinute", default=BrokerStatsItem())
    hour: BrokerStatsItem = field(name="statsHour", default=BrokerStatsItem())
    day: BrokerStatsItem = field(name="statsDay", default=BrokerStatsItem())


class OffsetWrapper(WireStruct):
    """The progress of a group in a queue."""

    broker_offset: I64 = 0
    consumer_offset: I64 = 0
    pull_offset: I64 | None = None
    last_timestamp_ms: I64 = 0


class ConsumeStats(WireStruct):
    """The progress of a group on one broker."""

    offset_table: Mapping[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ConsumeStatsList(WireStruct):
    """The progress of each group on one broker: a map with one group for each."""

    consume_stats_list: tuple[Mapping[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: I64 = 0
    """Messages that the groups have not consumed."""
    total_inflight_diff: I64 = 0
    """Messages that the groups have pulled and not consumed."""


class ResetOffsets(WireStruct, java="ResetOffsetBody"):
    """The offsets from which the consumers of a group continue after a reset."""

    offset_table: Mapping[MessageQueue, I64] = {}


class ConnectedSlave(WireStruct, java="HARuntimeInfo.HAConnectionRuntimeInfo"):
    """A slave, as its master sees it."""

    addr: str | None = None
    slave_ack_offset: I64 = 0
    diff: I64 = 0
    in_sync: bool = False
    transferred_byte_in_second: I64 = 0
    transfer_from_where: I64 = 0


class SlaveStatus(WireStruct, java="HARuntimeInfo.HAClientRuntimeInfo"):
    """A slave's own replication state; times in epoch milliseconds."""

    master_addr: str | None = None
    transferred_byte_in_second: I64 = 0
    max_offset: I64 = 0
    last_read_timestamp: I64 = 0
    last_write_timestamp: I64 = 0
    master_flush_offset: I64 = 0


class HaStatus(WireStruct, java="HARuntimeInfo"):
    """The replication of a broker: of its slaves if it is a master, else its own."""

    master: bool = False
    master_commit_log_max_offset: I64 = 0
    in_sync_slave_nums: I32 = 0
    slaves: tuple[ConnectedSlave, ...] = field(name="haConnectionInfo", default=())
    slave: SlaveStatus | None = field(name="haClientRuntimeInfo", default=None)


class KvTable(WireStruct, java="KVTable"):
    """Names and values, in their order."""

    table: Mapping[str, str] = {}


V3_0_11: Final = version_number("V3_0_11")
LENGTH: Final = struct.Struct(">i")


class TopicFilterType(Enum):
    """A message has one tag or several; brokers treat both alike."""

    SINGLE_TAG = 0
    MULTI_TAG = 1


class DataVersion(WireStruct):
    """The version of a table; it changes with every change of the table."""

    counter: I64 = 0
    state_version: I64 = 0
    timestamp_ms: I64 = 0


class TopicConfig(WireStruct):
    """A topic on one broker. ``perm``: 4 read, 2 write, 1 inherit."""

    topic_name: str
    read_queue_nums: I32 = 16
    write_queue_nums: I32 = 16
    perm: I32 = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: I32 = 0
    """1 unit, 2 unit subscription."""
    order: bool = False
    attributes: Mapping[str, str] | None = None
    mapping_detail: QueueMapping | None = None
    """Of a static topic, if it was requested with ``lo``."""


class TopicConfigTable(WireStruct, java="TopicConfigSerializeWrapper"):
    """All topics of a broker."""

    data_version: DataVersion = DataVersion()
    topic_config_table: Mapping[str, TopicConfig] = {}


class RegisterBrokerBody(WireStruct):
    """A broker's registration at a name server."""

    topic_config_table: TopicConfigTable = field(
        name="topicConfigSerializeWrapper", default=TopicConfigTable()
    )
    filter_server_list: tuple[str, ...] = ()


def decode_registration(
    content: bytes, *, compressed: bool = False, version: int = V3_0_11
) -> RegisterBrokerBody:
    """Parse a registration; ``version`` is that of its command.

    :raises CommandBodyError: if it is invalid, or larger than MAX_JSON_BODY_BYTES when
        decompressed.
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
        # In 5.x static topic mappings follow, which clients do not request from a name server.
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


class RetryPolicyType(Enum):
    """How the delay before each retry is computed."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(WireStruct):
    """Delays that grow by a factor, in milliseconds."""

    initial_ms: I64 = 5000
    max_ms: I64 = 7200000
    multiplier: I64 = 2


class CustomizedRetryPolicy(WireStruct):
    """A list of delays in milliseconds; the last one repeats."""

    next_ms: tuple[I64, ...] = ()


class GroupRetryPolicy(WireStruct):
    """The delays before a group gets a failed message again; by default the delay levels."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential: ExponentialRetryPolicy | None = field(name="exponentialRetryPolicy", default=None)
    customized: CustomizedRetryPolicy | None = field(name="customizedRetryPolicy", default=None)


class SubscriptionGroupConfig(WireStruct):
    """The permissions of a group, and its number of retries. Defaults are RocketMQ's."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: I32 = 1
    retry_max_times: I32 = 16
    """-1: unlimited."""
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: I64 = 0
    """The broker that it pulls from; 0 is the master."""
    which_broker_when_consume_slowly: I64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: I32 = 0
    consume_timeout_minute: I32 = 15
    attributes: Mapping[str, str] = {}


class SubscriptionGroupTable(WireStruct, java="SubscriptionGroupWrapper"):
    """All groups of a broker, by name."""

    subscription_group_table: Mapping[str, SubscriptionGroupConfig] = {}
    data_version: DataVersion = DataVersion()
    forbidden_table: Mapping[str, Mapping[str, I32]] = {}
    """Operations that are forbidden to a group, as bits, by group and topic."""


class BrokerData(WireStruct):
    """The brokers of one name: broker id (0 is the master) to address."""

    broker_name: str
    broker_addrs: Mapping[I64, str] = {}
    cluster: str | None = None
    zone_name: str | None = None
    enable_acting_master: bool = False


class QueueData(WireStruct):
    """The number of queues of a topic on the brokers of one name."""

    broker_name: str
    read_queue_nums: I32 = 0
    write_queue_nums: I32 = 0
    perm: I32 = 0
    topic_sys_flag: I32 = 0


class TopicRouteData(WireStruct):
    """The route of a topic."""

    queue_datas: tuple[QueueData, ...]
    broker_datas: tuple[BrokerData, ...]
    filter_server_table: Mapping[str, tuple[str, ...]] = {}
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: Mapping[str, QueueMapping] | None = None
    """Of a static topic, without its ``hosted_queues``."""


class ClusterInfo(WireStruct):
    """All brokers by name, and the names in each cluster."""

    broker_addr_table: Mapping[str, BrokerData] = {}
    cluster_addr_table: Mapping[str, tuple[str, ...]] = {}


class TopicList(WireStruct):
    """Names of topics. For 304: of clusters and brokers, and the address of one broker."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


class BrokerMemberGroup(WireStruct):
    """The brokers of one name: broker id to address."""

    cluster: str | None = None
    broker_name: str
    broker_addrs: Mapping[I64, str] = {}


class BrokerMemberGroupAnswer(WireStruct, java="GetBrokerMemberGroupResponseBody"):
    """The body of the answer to 901."""

    broker_member_group: BrokerMemberGroup
