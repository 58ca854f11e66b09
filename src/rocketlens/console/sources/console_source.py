"""A source as the console asks it: for messages, and for facts that are None if it lacks them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from rocketlens.client.connect.namespace import without_namespace
from rocketlens.model.group import GroupsAnswer, ProducersAnswer
from rocketlens.model.message import MessageExt
from rocketlens.model.status import ArchiveStatus, BrokersAnswer, StoreStatus
from rocketlens.model.topic import FoundTopic, TopicsAnswer, TopicSettings
from rocketlens.query.facts.waiting import WaitingMessages
from rocketlens.query.source import Source
from rocketlens.query.story.story import Story

if TYPE_CHECKING:
    from rocketlens.console.sources.sources import ClusterOfConsole


class ConsoleSource:
    """One source of a console; each kind says more than the defaults."""

    kind: Literal["store", "cluster", "archive"]
    """Whether it runs, or is what was written."""
    name: str
    """Its name in addresses of pages."""
    title: str
    """The path or address, or the addresses of name servers."""
    command_options: Sequence[str]
    """The options by which a command line reads the same source."""
    source: Source
    """The source of messages."""
    cluster: "ClusterOfConsole | None" = None
    """The cluster that it is, whatever a viewer may see of it."""
    namespace: str = ""
    """That of its topics, which grants leave out; empty for files, which have those of several."""

    def plain(self, topic: str) -> str:
        """Return the name of a topic without the namespace, as users and grants name it."""
        return without_namespace(self.namespace, topic)

    async def broker_of(self, message: MessageExt) -> str:
        """Return the name of the broker that stored a message, or its address."""
        return str(message.store_host)

    async def story(self, message: MessageExt, group: str | None = None) -> Story:
        """Return the story of a message; of one group alone, if it is given."""
        raise NotImplementedError

    async def topics(self, names: Sequence[str] | None = None) -> TopicsAnswer | None:
        """Return its topics, or those that are asked for; None if it cannot know them."""
        raise NotImplementedError

    async def topic_names(self) -> Sequence[str]:
        """Return the names of its topics that are known at little cost."""
        raise NotImplementedError

    async def topic_settings(self, topic: str) -> Sequence[TopicSettings]:
        """Return how a topic is configured, broker by broker; what is not known is not in it."""
        del topic
        return ()

    async def stored_since(self, topic: FoundTopic, since_ms: int) -> int | None:
        """Return about how many messages of a topic were stored since a time, if that is known."""

    async def waiting(self, answer: TopicsAnswer) -> WaitingMessages | None:
        """Return how many messages wait for each topic, of a source whose topics are ``answer``."""

    async def groups(self, name: str | None = None) -> GroupsAnswer | None:
        """Return its consumer groups, or one; None if it cannot know them."""

    async def producers(self) -> ProducersAnswer | None:
        """Return its producers; None if it cannot know them, or they may not be seen."""

    async def status(self) -> BrokersAnswer | StoreStatus | ArchiveStatus | None:
        """Return its brokers, or what a store directory or an archive is like; None if that may not
        be seen.
        """

    async def close(self) -> None:
        """Close it."""
