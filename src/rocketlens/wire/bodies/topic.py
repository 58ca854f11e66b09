"""Topics: their configuration (351, 21), and a broker's registration of all (103)."""

from collections.abc import Mapping
from enum import Enum

from rocketlens.wire.codes import V5_0_0
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
)


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
