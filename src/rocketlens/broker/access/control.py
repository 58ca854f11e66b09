"""The access control of one broker, of either kind: reads its files and tables, and decides.

Reading a stored message needs permission for each of its topics; a copy has the topics of its
original:

==============================================  ====================================================
a message in                                    has the topics
==============================================  ====================================================
a topic where messages wait (delays, timers,    its ``REAL_TOPIC`` instead; if that is a retry
transactions) or are kept after giving up       topic, also the topics of the next line
a group's retry or dead letter topic            that topic, its ``RETRY_TOPIC`` and its
                                                ``DLQ_ORIGIN_TOPIC``
any other topic                                 that topic
==============================================  ====================================================

A client in a namespace names the origin of a message that it sends back without the namespace. If
the namespace of the copy's group has that topic, it is the origin.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from rocketlens.broker.access.guard import Audit, guard_handlers
from rocketlens.broker.access.needs import reading_need, writing_need
from rocketlens.broker.access.plain_files import PlainAcl, load_files
from rocketlens.broker.access.plain_rules import PlainRules
from rocketlens.broker.access.user_rules import Users
from rocketlens.broker.config import BrokerSettings
from rocketlens.broker.tables.registry import TopicRegistry
from rocketlens.broker.tables.table_saver import Table
from rocketlens.formats.commitlog_record import Record, RecordView
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import (
    DEAD_LETTER_PREFIX,
    NAMESPACE_SEPARATOR,
    RETRY_PREFIX,
    has_copies,
    is_group_topic,
    is_system_topic,
)
from rocketlens.model.text.java import decode_utf8
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.server import host_of
from rocketlens.store.disk import Disk
from rocketlens.wire.acl import ACCESS_KEY
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand

WATCH_INTERVAL_S: Final = 5.0
"""Seconds between two checks for changed files."""
_OF_GROUPS: Final = (props.RETRY_TOPIC, props.DLQ_ORIGIN_TOPIC)


class AccessControl:
    """Decides which requests have the permissions that they need."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicRegistry,
        disk: Disk,
        clock: Callable[[], int],
        save: Callable[[Table], asyncio.Future[bool]],
    ) -> None:
        """Read accounts, or users and policies.

        :raises BadInput: if a file of accounts is invalid, or its directory is unknown.
        :raises OSError: if a file or a table cannot be read or written.
        """
        config = settings.auth
        self._audit: Final = Audit()
        self._topics: Final = topics
        self.accounts: Final = PlainAcl(config.home) if config.aclEnable else None
        """Accounts of RocketMQ 4; None if there are users."""
        self.users: Final = None if config.aclEnable else _users(settings, disk, clock, save)
        """Users of RocketMQ 5; None if there are accounts."""
        self.tables: Final[tuple[Table, ...]] = (
            () if self.users is None else (self.users.users, self.users.acls)
        )
        """Tables that are saved together with the broker's other tables."""
        self._producers: Final[WeakKeyDictionary[Channel, RemotingCommand]] = WeakKeyDictionary()
        """By connection: its last heartbeat, without its body and its signature."""

    @property
    def _rules(self) -> PlainRules | Users:
        if self.users is not None:
            return self.users
        assert self.accounts is not None  # noqa: S101 - one of both
        return self.accounts.loaded.rules

    def guard_handlers(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Wrap a broker's handlers with checks."""

        def decide(command: RemotingCommand, host: str) -> Response | None:
            # For each request, because changed files replace the rules.
            return self._rules.decide(command, host)

        return guard_handlers(handlers, decide, self._audit)

    def secret_for(
        self, code: int, user: bytes | None, host: str, topic: str | None, group: str | None = None
    ) -> str | None:
        """Return the secret that must sign a send, look-up or pull; empty if no signature is
        needed.

        Return None if the request is refused, or if only `decide` can check it. Only the signature
        remains to be checked by the caller. ``topic`` is not a group's; ``user`` is ASCII.
        """
        fields = {}
        if topic is not None:
            fields["b" if code == RequestCode.SEND_MESSAGE_V2 else "topic"] = topic
        if group is not None:
            fields["consumerGroup"] = group
        if user is not None:
            fields[ACCESS_KEY] = user.decode()
        return self._rules.secret_for(RemotingCommand(code, ext_fields=fields), host)

    def may_read_all(self, code: int, user: bytes | None, host: str, topic: str) -> bool:
        """Return True if an admitted request can read all messages of ``topic``."""
        if has_copies(topic):
            return False
        command = _unsigned(code, None if user is None else user.decode())
        return self._rules.refuse_need(command, host, reading_need(topic)) is None

    def decide_reading(
        self, command: RemotingCommand, channel: Channel, record: Record
    ) -> Response | None:
        """Return the refusal of a request that names a message by its offset; None if it can read
        the message.

        RocketMQ checks the topic that the request names, and not the record's.
        """
        refusal = self.decide_origins(command, host_of(channel), record.topic, record.properties)
        return self._audited(command, channel, refusal)

    def reader_of(
        self, command: RemotingCommand, channel: Channel, topic: str
    ) -> "MessageReader | None":
        """Return the filter for messages that a request can read; None if it can read all."""
        if not has_copies(topic):
            return None
        return MessageReader(self, command.code, self._user_of(command), host_of(channel))

    def decide_origins(
        self, command: RemotingCommand, host: str, topic: str, properties: bytes, *, skip: str = ""
    ) -> Response | None:
        """Return the refusal to read a message, except in topic ``skip``. For any thread."""
        for each in topics_of(topic, properties, lambda name: self._topics.get(name) is not None):
            if each != skip:
                refusal = self._rules.refuse_need(command, host, reading_need(each))
                if refusal is not None:
                    return refusal
        return None

    def seen_by(self, command: RemotingCommand, channel: Channel) -> Callable[[str], bool]:
        """Return a predicate for topics, and retry topics, that a list can show. For any thread."""
        unsigned = command._replace(body=b"")
        host = host_of(channel)
        return lambda topic: self._rules.may_see(unsigned, host, topic)

    def decide_writing(
        self, command: RemotingCommand, channel: Channel, topic: str
    ) -> Response | None:
        """Return the refusal of a request that writes to a topic; None if it can.

        ``topic`` is that of the message, which the request need not name: it stores a reply, or
        ends a transaction.
        """
        refusal = self._rules.refuse_need(command, host_of(channel), writing_need(topic))
        return self._audited(command, channel, refusal)

    def decide_copying(
        self, command: RemotingCommand, channel: Channel, topic: str, properties: bytes
    ) -> Response | None:
        """Return the refusal of a request that stores a message in a group's topic; None if it can.

        Consumers treat the message as a copy from the topic that its properties name, so its sender
        needs permission to read that topic. RocketMQ checks the group only.
        """
        refusal = self.decide_origins(command, host_of(channel), topic, properties, skip=topic)
        return self._audited(command, channel, refusal)

    def _audited(
        self, command: RemotingCommand, channel: Channel, refusal: Response | None
    ) -> Response | None:
        if refusal is not None:
            self._audit.refuse(command, channel, refusal)
        return refusal

    def remember_producer(self, command: RemotingCommand, channel: Channel) -> None:
        """Remember the user whose heartbeat registered producer groups on a connection."""
        self._producers[channel] = _unsigned(command.code, self._user_of(command))

    def _user_of(self, command: RemotingCommand) -> str | None:
        """Return the user of an admitted request, for later decisions."""
        if self.users is not None:
            return self.users.proven_user(command)
        return command.ext_fields.get(ACCESS_KEY)

    def may_check(self, channel: Channel, topic: str) -> bool:
        """Return True if a producer can get half messages of ``topic``: its user can send there."""
        heartbeat = self._producers.get(channel)
        if heartbeat is None:
            return False
        refusal = self._rules.refuse_need(heartbeat, host_of(channel), writing_need(topic))
        return refusal is None

    def watch(self) -> None:
        """Read files of accounts again if they changed."""
        if self.accounts is not None:
            self.accounts.watch()

    def close(self) -> None:
        if self.accounts is not None:
            self.accounts.close()

    @property
    def refused(self) -> int:
        return self._audit.refused

    def runtime(self) -> dict[str, str]:
        return {
            "accessControl": "users" if self.accounts is None else "accounts",
            "accessControlProblem": "" if self.accounts is None else self.accounts.problem,
            "requestsRefused": str(self._audit.refused),
        }


class MessageReader(Struct, frozen=True):
    """Filters messages by the permissions of one request."""

    access: AccessControl
    code: int
    user: str | None
    host: str

    def may_read(self, content: memoryview) -> bool:
        """Return True if the request can read a record. For any thread."""
        record, command = RecordView(content), _unsigned(self.code, self.user)
        topic, properties = record.topic, record.properties
        return self.access.decide_origins(command, self.host, topic, properties) is None


def topics_of(topic: str, properties: bytes, is_topic: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the topics of a message: reading it needs permission for all."""
    if not has_copies(topic):
        return (topic,)
    named = props.parse(decode_utf8(properties))
    if is_system_topic(topic):
        topic = named.get(props.REAL_TOPIC) or topic
    if not is_group_topic(topic):
        return (topic,)
    group = topic.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)
    namespace, separator, _ = group.rpartition(NAMESPACE_SEPARATOR)
    origins = []
    for origin in filter(None, map(named.get, _OF_GROUPS)):
        full = f"{namespace}{separator}{origin}"
        origins.append(full if separator and is_topic(full) else origin)
    return tuple(dict.fromkeys((topic, *origins)))


def _unsigned(code: int, user: str | None) -> RemotingCommand:
    return RemotingCommand(code, ext_fields={} if user is None else {ACCESS_KEY: user})


def _users(
    settings: BrokerSettings,
    disk: Disk,
    clock: Callable[[], int],
    save: Callable[[Table], asyncio.Future[bool]],
) -> Users:
    config, cluster = settings.auth, settings.broker.brokerClusterName
    users = Users(config, cluster, settings.layout, disk, clock, save=save)
    if config.migrateAuthFromV1Enabled:
        users.migrate(load_files(config.home / "conf").configs)
    return users
