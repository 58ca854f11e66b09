"""Routes (105), clusters (106), and lists of topics (206, 224, 304)."""

from collections.abc import Mapping

from rocketlens.wire.codes import V5_0_0
from rocketlens.wire.declare import (
    BOOLEAN,
    I32,
    INTEGER_KEY,
    TEXT,
    array_of,
    declare,
    map_of,
    member,
    object_of,
)


@declare("BrokerData")
class BrokerData:
    """The brokers of one name: broker id (0 is the master) to address."""

    broker_name: str = member("brokerName", TEXT)
    broker_addrs: Mapping[int, str] = member(
        "brokerAddrs", map_of(INTEGER_KEY, TEXT), default_factory=dict
    )
    cluster: str | None = member("cluster", TEXT, default=None)
    zone_name: str | None = member("zoneName", TEXT, default=None, since=V5_0_0)
    enable_acting_master: bool = member("enableActingMaster", BOOLEAN, default=False, since=V5_0_0)


@declare("QueueData")
class QueueData:
    """How many queues of a topic the brokers of one name have."""

    broker_name: str = member("brokerName", TEXT)
    read_queue_nums: int = member("readQueueNums", I32, default=0)
    write_queue_nums: int = member("writeQueueNums", I32, default=0)
    perm: int = member("perm", I32, default=0)
    topic_sys_flag: int = member("topicSysFlag", I32, default=0)


@declare("TopicRouteData")
class TopicRouteData:
    """The route of a topic."""

    queue_datas: tuple[QueueData, ...] = member("queueDatas", array_of(object_of(QueueData)))
    broker_datas: tuple[BrokerData, ...] = member("brokerDatas", array_of(object_of(BrokerData)))
    filter_server_table: Mapping[str, tuple[str, ...]] = member(
        "filterServerTable", map_of(TEXT, array_of(TEXT)), default_factory=dict
    )
    order_topic_conf: str | None = member("orderTopicConf", TEXT, default=None)


@declare("ClusterInfo")
class ClusterInfo:
    """All brokers by name, and the names in each cluster."""

    broker_addr_table: Mapping[str, BrokerData] = member(
        "brokerAddrTable", map_of(TEXT, object_of(BrokerData)), default_factory=dict
    )
    cluster_addr_table: Mapping[str, tuple[str, ...]] = member(
        "clusterAddrTable", map_of(TEXT, array_of(TEXT)), default_factory=dict
    )


@declare("TopicList")
class TopicList:
    """Names of topics. For 304: of clusters and brokers, and the address of one broker."""

    topic_list: tuple[str, ...] = member("topicList", array_of(TEXT), default=())
    broker_addr: str | None = member("brokerAddr", TEXT, default=None)


@declare("BrokerMemberGroup")
class BrokerMemberGroup:
    """The brokers of one name: broker id to address."""

    cluster: str | None = member("cluster", TEXT, default=None)
    broker_name: str = member("brokerName", TEXT)
    broker_addrs: Mapping[int, str] = member(
        "brokerAddrs", map_of(INTEGER_KEY, TEXT), default_factory=dict
    )


@declare("GetBrokerMemberGroupResponseBody")
class BrokerMemberGroupAnswer:
    """The body of the answer to 901."""

    broker_member_group: BrokerMemberGroup = member(
        "brokerMemberGroup", object_of(BrokerMemberGroup)
    )
