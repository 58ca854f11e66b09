"""Selects the dead letters of a group, with their causes, and plans a job that sends them again."""

import time
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field

from rocketlens.client.resend.resend_job import MARKER, Target, plan_message
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
    """A filter for a group's dead letters; all given conditions must match.

    ``cause`` is a part of the result of `rocketlens.model.life.cause_of`, case-insensitive, with or
    without numbers. ``options`` are keywords of `MQAdmin.scan`.
    """

    key: str | None = None
    cause: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    """The conditions in words, as the user gave them."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "LetterFilter":
        """Return the filter for conditions by name: key, cause, and keywords of `MQAdmin.scan`.

        Empty conditions are ignored.
        """
        asked = {name: value for name, value in given.items() if value}
        words = ", ".join(f"{name} {value}" for name, value in asked.items() if value != ["body"])
        key, cause = asked.pop("key", None), asked.pop("cause", None)
        return cls(key=key, cause=cause, options=asked, text=words)

    @property
    def is_all(self) -> bool:
        return not self.text

    def takes(self, letter: MessageExt) -> bool:
        """Return True if key and cause match; a scan applies the options."""
        if self.key is not None and self.key not in {*letter.keys, letter.unique_key}:
            return False
        wanted = without_numbers(self.cause or "").casefold()
        return wanted in cause_of(letter).casefold()

    async def letters(self, admin: "MQAdmin", topic: str) -> AsyncGenerator[MessageExt]:
        """Read the matching letters of a topic in the order of their store times.

        :raises AnswerIncomplete: at the end, if some could not be read.
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
    """Return the causes of a topic's matching dead letters.

    Without conditions, only the newest `MAX_CAUSES_READ` are read. ``sent`` has the identities of
    letters that jobs have sent.

    :raises AnswerIncomplete: if some could not be read.
    :raises TopicNotFound: if the topic does not exist.
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
    """Return the newest matching dead letters; errors as `MQAdmin.find`."""
    scan = admin.scan(topic, **asked.options)
    letters: deque[MessageExt] = deque(maxlen=most + 1)
    async with aclosing(aiter(scan)) as scanned:
        async for letter in scanned:
            if asked.takes(letter):
                letters.append(letter)
    return _newest(letters, most, topic, scan.coverage)


def newest_letters_in(store: "Store", topic: str, asked: LetterFilter, most: int) -> Answer:
    """Return `newest_letters` of a store; errors as `Store.find`."""
    scan = store.scan(topic, **asked.options)
    letters = deque(filter(asked.takes, scan), maxlen=most + 1)
    return _newest(letters, most, topic, scan.coverage)


def _newest(
    letters: Sequence[MessageExt], most: int, topic: str, coverage: Iterable[Coverage]
) -> Answer:
    """Return the last letters; there is one more than ``most`` if some are left out."""
    newest = sorted([*letters][-most:] if most else [], key=lambda each: each.store_timestamp_ms)
    return Answer(topic, tuple(newest), tuple(coverage), truncated=len(letters) > most)


class DeadLetters(NamedTuple):
    """A selection of the dead letters of a group, to be sent."""

    messages: list[PlannedMessage]
    """The newest record of each message, in the order of store times."""
    older: int
    """The number of older records of these messages."""
    again: list[EarlierSend]
    """Jobs that sent some of these messages, which are dead letters again."""
    skipped: list[EarlierSend]
    """Jobs that sent messages that are not among these."""
    is_cut: bool
    """True if there are more than the requested number."""


class _Letter(NamedTuple):
    plan: PlannedMessage
    before: EarlierSend | None
    older: int


def dead_letter_selection(group: str, asked: LetterFilter = ALL_LETTERS) -> str:
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
    """Read a group's matching dead letters; the newest ``max_num`` will be sent.

    A message that a job in ``earlier`` has sent is skipped, unless the record names the job: then
    its copy has become a dead letter. ``only`` has the offset message ids of chosen records.

    :raises TopicNotFound: if the group has none.
    :raises BadInput: if their topic cannot be read.
    :raises AnswerIncomplete: if some of them could not be read.
    """
    topic = dead_letter_topic(group)
    if not await admin.message_queues(topic):
        raise BadInput(
            f"topic {topic} cannot be read: give it permission 6, as with updateTopic -p 6"
        )
    newest: dict[str, _Letter] = {}
    skipped: dict[str, EarlierSend] = {}
    is_cut = False
    # The order of store times makes the plan repeatable; the order of answers would not.
    async with aclosing(asked.letters(admin, topic)) as letters:
        async for message in letters:
            if only and message.offset_msg_id not in only:
                continue
            plan = plan_message(message, target, admin.source.full_topic)
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
