"""Reads the progress of consumer groups for a story from the files of a store.

| file | content |
|---|---|
| ``config/consumerOffset.json`` | next offsets; in RocketMQ 5 also the start of the last pulls |
| ``config/subscriptionGroup.json`` | the number of retries before a message is a dead letter |

Copies in retry and dead letter topics are found with the message's other records. Only the memory
of brokers has clients and their subscriptions.
"""

from typing import Any, Final

from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import BROADCAST_SUFFIX, is_system_group
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.topic import TopicKind
from rocketlens.query.facts.group_state import GroupFacts
from rocketlens.query.facts.groups import StoreGroupFiles, groups_of_store, message_model_by
from rocketlens.query.store_source import StoreSource
from rocketlens.query.story.story import Unlearnt
from rocketlens.query.story.story_search import SourceFacts, StorySource, missing_group
from rocketlens.store.read.config_tables import OFFSETS_FILE

_BY_LOG: Final = Sentence("by_log")
_NOT_IN_FILES: Final = Unlearnt(Sentence("online_clients"), Sentence("not_in_files"))


class StoreStorySource(StorySource):
    """A store directory as a source of stories."""

    def __init__(self, source: StoreSource, said_by: str = _BY_LOG) -> None:
        """``said_by`` describes the source of its records."""
        super().__init__(source)
        self._reader: Final = source.reader
        self._said_by: Final = said_by

    def facts(self, message: MessageExt, groups: set[str], only_group: str | None) -> SourceFacts:
        files = StoreGroupFiles(self._reader)
        offsets, configs = files.offsets(), files.configs()
        pull_offsets = files.offsets("pullOffsetTable")
        in_topic = {
            group
            for group, queues in offsets.items()
            if any(topic == message.topic for topic, _ in queues)
        }
        named = {each.removesuffix(BROADCAST_SUFFIX) for each in in_topic}
        names = {each for each in named if not is_system_group(each)} | groups
        failures = tuple(each for each in files.coverage if each.is_failure)
        is_known = not any(each.source.startswith(OFFSETS_FILE) for each in failures)
        queue = (message.topic, message.queue_id)
        in_queue = self._reader.static_topics.group_offset
        facts = []
        for name in sorted({only_group} if only_group is not None else names):
            own = offsets.get(name, {})
            retry: dict[tuple[str, str | None, int], int] = {
                (topic, None, queue_id): offset
                for (topic, queue_id), offset in own.items()
                if TopicKind.of(topic) is TopicKind.RETRY
            }
            facts.append(
                GroupFacts(
                    name,
                    has_offsets=name in in_topic if is_known else None,
                    consumer_offset=in_queue(queue, own, files.bounds),
                    pull_offset=in_queue(queue, pull_offsets.get(name, {}), files.bounds),
                    retry_offsets=retry if is_known else None,
                    retry_max_times=_retry_max_times(configs.get(name)),
                    offsets_source=OFFSETS_FILE,
                    message_model=message_model_by(in_topic, name),
                )
            )
        no_group = None
        if only_group is not None:
            is_there = only_group in {*names, *configs}
            no_group = "" if is_there else missing_group(groups_of_store(self._reader, only_group))
        return SourceFacts(tuple(facts), (_NOT_IN_FILES,), failures, no_group=no_group)

    def said_by(self, _message: MessageExt) -> str:
        return self._said_by


def _retry_max_times(config: Any) -> int | None:
    given = config.get("retryMaxTimes") if isinstance(config, dict) else None
    return given if type(given) is int else None
