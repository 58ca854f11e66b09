"""The keyword arguments of clients, for the blocking ones, which pass them on.

Type checkers and editors know them by these; a test compares them with the async classes, whose
docstrings say what they mean.
"""

import ssl
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Required, TypedDict

from rocketlens.client.connect.cluster import Credentials
from rocketlens.client.consume.allocation import AllocateStrategy
from rocketlens.client.consume.settings import Begin
from rocketlens.client.send.producer import SendHook
from rocketlens.client.send.send_request import Compression
from rocketlens.client.send.transaction import Check
from rocketlens.net.channel import Handler
from rocketlens.query.options import ScanOptions, TailOptions


class ConnectionOptions(TypedDict, total=False):
    """How a client reaches a cluster."""

    namespace: str
    credentials: Credentials | None
    tls: ssl.SSLContext | None
    timeout_s: float
    connect_timeout_s: float
    clock: Callable[[], float]


class AdminOptions(ConnectionOptions, total=False):
    """Of `rocketlens.MQAdmin`."""

    handlers: Mapping[int, Handler]
    seen_brokers: str | PathLike[str] | None


class SendingOptions(ConnectionOptions, total=False):
    """What both kinds of producers have."""

    group: str
    retries: int
    send_timeout_s: float
    attempt_timeout_s: float | None
    retries_when_not_safe: bool
    compression: Compression | None
    compression_level: int
    compress_over_bytes: int
    max_message_bytes: int
    default_topic_queue_nums: int
    isolates_latency: bool
    hooks: Iterable[SendHook]
    trace: bool | str


class ProducerOptions(SendingOptions, total=False):
    """Of `rocketlens.Producer`."""

    handlers: Mapping[int, Handler]


class TransactionProducerOptions(SendingOptions, total=False):
    """Of `rocketlens.TransactionProducer`."""

    check: Required[Check]
    topics: Iterable[str]
    check_threads: int


class ConsumerOptions(ConnectionOptions, total=False):
    """What both kinds of consumers have."""

    group: Required[str]
    broadcasting: bool
    begin: Begin
    begin_timestamp_ms: int | None
    pull_batch: int
    max_cached_messages_of_queue: int
    max_cached_bytes_of_queue: int
    max_span_of_queue: int
    max_cached_bytes: int
    allocate: AllocateStrategy | None
    instance_name: str | None
    offsets_directory: str | PathLike[str] | None
    trace: bool | str


class PushConsumerOptions(ConsumerOptions, total=False):
    """Of `rocketlens.PushConsumer`."""

    concurrency: int
    batch: int
    max_reconsume_times: int | None
    consume_timeout_s: float
    close_timeout_s: float


class LitePullConsumerOptions(ConsumerOptions, total=False):
    """Of `rocketlens.LitePullConsumer`."""

    auto_commit: bool
    max_cached_messages: int


class CreateTopicOptions(TypedDict, total=False):
    """Of `rocketlens.MQAdmin.create_topic`."""

    cluster_name: str | None
    perm: int
    order: bool


class GroupBrokersOptions(TypedDict, total=False):
    """Of `rocketlens.MQAdmin.create_and_update_subscription_group`."""

    cluster_name: str | None
    broker_addr: str | None


class DeleteGroupOptions(GroupBrokersOptions, total=False):
    """Of `rocketlens.MQAdmin.delete_subscription_group`."""

    clean_offset: bool


class ReadOptions(ScanOptions, total=False):
    """Of `rocketlens.MQAdmin.scan`."""

    on_event: Callable[[str], None] | None


class FollowOptions(TailOptions, total=False):
    """Of `rocketlens.MQAdmin.tail`."""

    follow: bool
    on_event: Callable[[str], None] | None
