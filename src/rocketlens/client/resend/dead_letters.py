"""The dead letters of a group: those that are asked for, their causes, and which are sent again."""

import time
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field

from rocketlens.client.resend.resend_job import MARKER, Target, planned
from rocketlens.client.resend.resend_journal import EarlierSend, PlannedMessage
from rocketlens.errors import AnswerIncomplete, BadInput
from rocketlens.model.answer import Answer, Coverage, first_failure
from rocketlens.model.life import cause_of, dead_letter_topic, without_numbers
from rocketlens.model.message import MessageExt
from rocketlens.query.facts.letter_causes import MAX_CAUSES_READ, LetterCauses

if TYPE_CHECKING:
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.query.offline import Store


class LetterFilter(Struct, frozen=True, kw_only=True):
    """Which dead letters of a group: those for which all holds that is given.

    ``cause`` is a part of what `rocketlens.model.life.cause_of` returns, in any case of letters,
    with or without its numbers. ``options`` are keywords of `MQAdmin.scan`.
    """

    key: str | None = None
    cause: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    """It in words, as its user gave it."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "LetterFilter":
        """Return the filter of what its user gave: texts by their names, empty ones for nothing.

        The names are key, cause, and keywords of `MQAdmin.scan`.
        """
        asked = {name: value for name, value in given.items() if value}
        words = ", ".join(f"{name} {value}" for name, value in asked.items() if value != ["body"])
        key, cause = asked.pop("key", None), asked.pop("cause", None)
        return cls(key=key, cause=cause, options=asked, text=words)

    @property
    def is_all(self) -> bool:
        """Whether it takes every dead letter."""
        return not self.text

    def takes(self, letter: MessageExt) -> bool:
        """Return whether key and cause are those asked for; the options are for a scan."""
        if self.key is not None and self.key not in {*letter.keys, letter.unique_key}:
            return False
        wanted = without_numbers(self.cause or "").casefold()
        return wanted in cause_of(letter).casefold()

    async def letters(self, admin: "MQAdmin", topic: str) -> AsyncGenerator[MessageExt]:
        """Read those of a topic in the order of their store times.

        :raises AnswerIncomplete: at the end, if not all could be read.
        """
        scan = admin.scan(topic, **self.options)
        async with aclosing(aiter(scan)) as letters:
            async for letter in letters:
                if self.takes(letter):
                    yield letter
        failed = first_failure(scan.coverage)
        if failed:
            raise AnswerIncomplete(
                f"not all dead letters could be read: {failed}", Answer(topic, (), scan.coverage)
            )


ALL_LETTERS: Final = LetterFilter()


async def find_causes(
    admin: "MQAdmin",
    topic: str,
    asked: LetterFilter,
    sent: Collection[str],
    now_ms: int | None = None,
) -> LetterCauses:
    """Return the causes of the dead letters of a topic.

    Of all those that are asked for; if that is all there are, of the newest `MAX_CAUSES_READ`.
    ``sent`` has the identities of those that jobs have sent.

    :raises AnswerIncomplete: if not all could be read.
    :raises TopicNotFound: if there is no such topic.
    """
    causes = LetterCauses(time.time_ns() // 1_000_000 if now_ms is None else now_ms)

    def add(letter: MessageExt) -> None:
        was_sent = (letter.unique_key or letter.offset_msg_id) in sent
        causes.add(cause_of(letter), letter.store_timestamp_ms, was_sent=was_sent)

    if not asked.is_all:
        async with aclosing(asked.letters(admin, topic)) as letters:
            async for letter in letters:
                add(letter)
    else:
        async with admin.tail(topic, MAX_CAUSES_READ) as tail:
            async for letter in tail:
                add(letter)
        failed = first_failure(tail.coverage)
        if failed:
            raise AnswerIncomplete(failed, Answer(topic, (), tuple(tail.coverage)))
    return causes


async def newest_letters(admin: "MQAdmin", topic: str, asked: LetterFilter, most: int) -> Answer:
    """Return the newest dead letters that are asked for; errors as `MQAdmin.find`."""
    scan = admin.scan(topic, **asked.options)
    letters: deque[MessageExt] = deque(maxlen=most + 1)
    async with aclosing(aiter(scan)) as scanned:
        async for letter in scanned:
            if asked.takes(letter):
                letters.append(letter)
    return _newest(letters, most, topic, scan.coverage)


def newest_letters_in(store: "Store", topic: str, asked: LetterFilter, most: int) -> Answer:
    """Return what `newest_letters` does, of a store; errors as `Store.find`."""
    scan = store.scan(topic, **asked.options)
    letters = deque(filter(asked.takes, scan), maxlen=most + 1)
    return _newest(letters, most, topic, scan.coverage)


def _newest(
    letters: Sequence[MessageExt], most: int, topic: str, coverage: Iterable[Coverage]
) -> Answer:
    """Return the last letters, of which there is one more than ``most`` if some are left out."""
    newest = sorted([*letters][-most:] if most else [], key=lambda each: each.store_timestamp_ms)
    return Answer(topic, tuple(newest), tuple(coverage), truncated=len(letters) > most)


class DeadLetters(NamedTuple):
    """A selection of the dead letters of a group, to be sent."""

    messages: list[PlannedMessage]
    """Of several records of one message the newest, in the order of store times."""
    older: int
    """Older records of these messages."""
    again: list[EarlierSend]
    """Jobs that sent messages of these, which are dead letters again."""
    skipped: list[EarlierSend]
    """Jobs that sent messages that are not among these."""
    is_cut: bool
    """Whether there are older ones than were asked for."""


class _Letter(NamedTuple):
    plan: PlannedMessage
    before: EarlierSend | None
    older: int


def dead_letter_selection(group: str, asked: LetterFilter = ALL_LETTERS) -> str:
    """Return what a job of a group's dead letters is called."""
    return f"dead letters of group {group}" + (f", {asked.text}" if asked.text else "")


async def plan_dead_letters(
    admin: "MQAdmin",
    group: str,
    target: Target,
    *,
    earlier: Mapping[str, EarlierSend],
    max_num: int,
    only: Collection[str] = (),
    asked: LetterFilter = ALL_LETTERS,
) -> DeadLetters:
    """Read all dead letters of a group that are asked for; the newest ``max_num`` are sent.

    What a job in ``earlier`` has sent is left out, unless the record names the job: then its copy
    has become a dead letter. ``only`` has offset message ids of records that were chosen.

    :raises TopicNotFound: if the group has none.
    :raises BadInput: if their topic cannot be read.
    :raises AnswerIncomplete: if not all of them could be read.
    """
    topic = dead_letter_topic(group)
    if not await admin.message_queues(topic):
        raise BadInput(
            f"topic {topic} cannot be read: give it permission 6, as with updateTopic -p 6"
        )
    newest: dict[str, _Letter] = {}
    skipped: dict[str, EarlierSend] = {}
    is_cut = False
    # In the order of store times: as brokers answer, a plan would be another one each time.
    async with aclosing(asked.letters(admin, topic)) as letters:
        async for message in letters:
            if only and message.offset_msg_id not in only:
                continue
            plan = planned(message, target, admin.source.full_topic)
            before = earlier.get(plan.identity)
            if before is not None and message.properties.get(MARKER) != before.marker:
                skipped[plan.identity] = before
                continue
            same = newest.pop(plan.identity, None)
            newest[plan.identity] = _Letter(plan, before, 0 if same is None else same.older + 1)
            if len(newest) > max_num:
                del newest[next(iter(newest))]
                is_cut = True
    return DeadLetters(
        [each.plan for each in newest.values()],
        sum(each.older for each in newest.values()),
        [each.before for each in newest.values() if each.before is not None],
        [before for identity, before in skipped.items() if identity not in newest],
        is_cut,
    )
