"""The access control of one broker, of either kind: opened, put before its handlers, watched.

A stored message is read by those who may read each topic that it is of; a copy is of the topics of
its original:

==============================================  ====================================================
a message in                                    is of
==============================================  ====================================================
a topic where messages wait (delays, timers,    its ``REAL_TOPIC`` instead, and if that is a retry
transactions) or lie that were given up         topic, the next line, too
a group's retry or dead letter topic            that topic, its ``RETRY_TOPIC`` and its
                                                ``DLQ_ORIGIN_TOPIC``
any other topic                                 that topic
==============================================  ====================================================

A client in a namespace names the origin of what it sends back without it. If the group of the copy
is in a namespace that has such a topic, that one is meant.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from rocketlens.broker.access.guard import Audit, guarded
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
"""Between two looks at the files of accounts."""
_OF_GROUPS: Final = (props.RETRY_TOPIC, props.DLQ_ORIGIN_TOPIC)


class AccessControl:
    """Decides which requests a broker refuses for want of a permission."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicRegistry,
        disk: Disk,
        clock: Callable[[], int],
        save: Callable[[Table], asyncio.Future[bool]],
    ) -> None:
        """Read accounts, or users and policies.

        :raises BadInput: when a file of accounts cannot be understood, or is not to be found.
        :raises OSError: when a file or a table cannot be read or written.
        """
        config = settings.auth
        self._audit: Final = Audit()
        self._topics: Final = topics
        self.accounts: Final = PlainAcl(config.home) if config.aclEnable else None
        """Accounts of RocketMQ 4; None where there are users."""
        self.users: Final = None if config.aclEnable else _users(settings, disk, clock, save)
        """Users of RocketMQ 5; None where there are accounts."""
        self.tables: Final[tuple[Table, ...]] = (
            () if self.users is None else (self.users.users, self.users.acls)
        )
        """Tables that are saved together with the broker's others."""
        self._producers: Final[WeakKeyDictionary[Channel, RemotingCommand]] = WeakKeyDictionary()
        """By connection: its last heartbeat, without its body and its signature."""

    @property
    def _rules(self) -> PlainRules | Users:
        """The rules in force now."""
        if self.users is not None:
            return self.users
        assert self.accounts is not None  # noqa: S101 - one of both
        return self.accounts.loaded.rules

    def guarded(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return a broker's handlers behind its checks."""
        # The rules are looked up for each request: they are others when files have changed.
        return guarded(handlers, lambda asked, host: self._rules.decide(asked, host), self._audit)  # noqa: PLW0108

    def secret_for(
        self, code: int, user: bytes | None, host: str, topic: str | None, group: str | None = None
    ) -> str | None:
        """Return the secret that a user's send to a topic, look-up, or pull for a group must be
        signed with, if that is all that is left to check; empty if it need not be signed, else
        None.

        The topic of a send is not a group's. ``user`` is ASCII.
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
        """Return whether a request that was let through may read each message of a topic, which is
        not one of copies.
        """
        if has_copies(topic):
            return False
        command = _unsigned(code, None if user is None else user.decode())
        return self._rules.refuse_need(command, host, reading_need(topic)) is None

    def decide_reading(
        self, command: RemotingCommand, channel: Channel, record: Record
    ) -> Response | None:
        """Return the refusal of a request that names a message by its offset; None if it may read.

        RocketMQ compares such a request with the topic that it names, and not with the record's.
        """
        refusal = self.decide_origins(command, host_of(channel), record.topic, record.properties)
        return self._audited(command, channel, refusal)

    def reader_of(
        self, command: RemotingCommand, channel: Channel, topic: str
    ) -> "MessageReader | None":
        """Return which messages of a topic a request gets that was let through; None for all."""
        if not has_copies(topic):
            return None
        return MessageReader(self, command.code, self._user_of(command), host_of(channel))

    def decide_origins(
        self, command: RemotingCommand, host: str, topic: str, properties: bytes, *, skip: str = ""
    ) -> Response | None:
        """Return the refusal of a request that reads a message; None if it may. For any thread.

        ``skip`` is a topic that the request may use.
        """
        for each in topics_of(topic, properties, lambda name: self._topics.get(name) is not None):
            if each != skip:
                refusal = self._rules.refuse_need(command, host, reading_need(each))
                if refusal is not None:
                    return refusal
        return None

    def seen_by(self, command: RemotingCommand, channel: Channel) -> Callable[[str], bool]:
        """Return a predicate: may a topic, or a group by its retry topic, be listed?

        For any thread.
        """
        unsigned = command._replace(body=b"")
        host = host_of(channel)
        return lambda topic: self._rules.may_see(unsigned, host, topic)

    def decide_writing(
        self, command: RemotingCommand, channel: Channel, topic: str
    ) -> Response | None:
        """Return why a request may not write to a topic; None if it may.

        The topic is the message's own, which the request need not name: it stores a reply there, or
        ends a transaction.
        """
        refusal = self._rules.refuse_need(command, host_of(channel), writing_need(topic))
        return self._audited(command, channel, refusal)

    def decide_copying(
        self, command: RemotingCommand, channel: Channel, topic: str, properties: bytes
    ) -> Response | None:
        """Return the refusal of a request that stores a message in a group's topic; None if it may.

        Consumers take it for a copy of a message of the topic that its properties name, so its
        sender must be allowed to read there. RocketMQ compares the group alone.
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
        """Remember whose heartbeat made a connection a member of producer groups."""
        self._producers[channel] = _unsigned(command.code, self._user_of(command))

    def _user_of(self, command: RemotingCommand) -> str | None:
        """Return the user of a request that was let through, for later decisions."""
        if self.users is not None:
            return self.users.proven_user(command)
        return command.ext_fields.get(ACCESS_KEY)

    def may_check(self, channel: Channel, topic: str) -> bool:
        """Return whether a connection may be sent a half message of a topic, to check it.

        A user without permission to send to a topic has no transactions there.
        """
        heartbeat = self._producers.get(channel)
        if heartbeat is None:
            return False
        refusal = self._rules.refuse_need(heartbeat, host_of(channel), writing_need(topic))
        return refusal is None

    def watch(self) -> None:
        """Look whether files have changed."""
        if self.accounts is not None:
            self.accounts.watch()

    def close(self) -> None:
        """Stop looking."""
        if self.accounts is not None:
            self.accounts.close()

    @property
    def refused(self) -> int:
        """Number of requests refused since the start."""
        return self._audit.refused

    def runtime(self) -> dict[str, str]:
        """Return the values for tools (28); RocketMQ has none of them."""
        return {
            "accessControl": "users" if self.accounts is None else "accounts",
            "accessControlProblem": "" if self.accounts is None else self.accounts.problem,
            "requestsRefused": str(self._audit.refused),
        }


class MessageReader(Struct, frozen=True):
    """Whose request reads messages, each of which it may read or not."""

    access: AccessControl
    code: int
    user: str | None
    host: str

    def may_read(self, content: memoryview) -> bool:
        """Return whether a record is for it. For any thread."""
        record, command = RecordView(content), _unsigned(self.code, self.user)
        topic, properties = record.topic, record.properties
        return self.access.decide_origins(command, self.host, topic, properties) is None


def topics_of(topic: str, properties: bytes, is_topic: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the topics all of which one must be allowed to read for a message.

    ``properties`` are those of its record; ``is_topic`` says whether the broker has a topic.
    """
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
    """Return the parts of an admitted request that later decisions need."""
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
