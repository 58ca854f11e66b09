"""Reasons why a complete answer may be empty, in order of evidence, and wider searches."""

import asyncio
import re
import unicodedata
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rocketlens.console.message.look_up import LookUps
from rocketlens.console.search.question import Question
from rocketlens.console.values import SearchAnswer
from rocketlens.errors import RocketLensError
from rocketlens.model.message_id import nearly_message_id
from rocketlens.query.topic_choice import is_pattern, resembling

_SHOWN: Final = 3
_KEY_KINDS: Final = frozenset({"auto", "key"})
_INVISIBLE: Final = frozenset({"Cf", "Mn", "Me"})
_BETWEEN: Final = re.compile(r"[\s\u3001-\u303f\uff01-\uff0f\uff1a-\uff20]+")
"""Between words: white space, and the full-width marks of Chinese text."""
_BODIES_SINCE: Final = "24h"
"""No index has bodies, so all that was stored since then is read for them."""


@dataclass(frozen=True, slots=True)
class EmptyReason:
    """One reason: the name of its text, the text's values, and the address of a wider search."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    wider: str | None = None


async def reasons_for(
    question: Question, answer: SearchAnswer, look_up: LookUps
) -> list[EmptyReason]:
    """Return likely reasons for an empty answer that is complete; none for any other answer."""
    if answer.messages or not answer.complete or question.cursor is not None:
        return []
    reasons = _mistaken_id(question)
    oldest_ms = await _oldest_ms(question, look_up)
    if oldest_ms is not None and (question.end or oldest_ms) < oldest_ms:
        reasons.append(EmptyReason("before_oldest", {"oldest_ms": oldest_ms}))
    if question.since or question.until:
        all_times = question.address("/search", since="", until="")
        reasons.append(EmptyReason("outside_times", wider=all_times))
    if question.tag:
        reasons.append(EmptyReason("other_tag", wider=question.address("/search", tag="")))
    if question.has_filter:
        rest = replace(question, where="", grep="")
        wider = None if rest.is_empty else rest.address("/search")
        reasons.append(EmptyReason("filtered", wider=wider))
    plain = _plain(question.text) if question.kind in _KEY_KINDS else ""
    if plain not in ("", question.text):
        reasons.append(EmptyReason("marks", wider=question.address("/search", text=plain)))
    if question.text and question.topic:
        reasons.append(EmptyReason("other_topic", wider=question.address("/search", topic="")))
    if question.kind != "auto" and question.text:
        reasons.append(EmptyReason("other_kind", wider=question.address("/search", kind="auto")))
    if question.sources and len(look_up.sources) > 1:
        reasons.append(EmptyReason("other_source", wider=question.address("/search", sources=())))
    if question.text:
        wider = None if question.has_filter else _in_bodies(question)
        reasons.append(EmptyReason("no_key", wider=wider))
        reasons.append(EmptyReason("whole_key", wider=_other_case(question)))
    reasons.append(EmptyReason("expired"))
    return reasons[:_SHOWN]


async def topics_instead(question: Question, look_up: LookUps) -> list[tuple[str, str]]:
    """Return the topics that the one of a question resembles, each with the address of the same
    search in it; none if it names several, or a pattern.
    """
    if not question.topic or is_pattern(question.topic) or "," in question.topic:
        return []
    answers = await asyncio.gather(
        *(each.topic_names() for each in look_up.sources.chosen(question.sources)),
        return_exceptions=True,
    )
    names = {name for each in answers if not isinstance(each, BaseException) for name in each}
    return [
        (name, question.address("/search", topic=name, cursor=None))
        for name in resembling(question.topic, names)
    ]


def _mistaken_id(question: Question) -> list[EmptyReason]:
    """Return that the text is an id with a small mistake, if it looks like one."""
    is_id = question.kind in {"auto", "unique-key"}
    nearly = nearly_message_id(question.text) if is_id else None
    if nearly is None:
        return []
    count, expected, letters, meant = nearly
    if meant is None:
        name = "id_too_short" if count < expected else "id_too_long"
        return [EmptyReason(name, {"count": count, "expected": expected})]
    shown = ", ".join(f"{letter} → {digit}" for letter, digit in letters)
    corrected = question.address("/search", text=meant)
    return [EmptyReason("id_letters", {"letters": shown, "meant": meant}, wider=corrected)]


def _other_case(question: Question) -> str | None:
    """Return the address of a search for the same text in capitals, or without; None if it has no
    letters.
    """
    other = next(
        (t for t in (question.text.upper(), question.text.lower()) if t != question.text), ""
    )
    return question.address("/search", text=other) if other else None


def _plain(text: str) -> str:
    """Return what of a pasted text can be a key: no invisible characters, no quotes or full stops
    around it, and of several words the last one with a digit.
    """
    visible = "".join(each for each in text if unicodedata.category(each) not in _INVISIBLE)
    parts = [each for word in _BETWEEN.split(visible) if (each := _without_marks(word))]
    numbers = [each for each in parts if any(map(str.isdigit, each))]
    return (numbers or parts or [""])[-1]


def _without_marks(word: str) -> str:
    marks = {each for each in word if unicodedata.category(each)[0] == "P"}
    return word.strip("".join(marks))


def _in_bodies(question: Question) -> str:
    """Return the address of a search for the same text in bodies: of a day, unless times are
    asked for.
    """
    values: dict[str, Any] = {"text": "", "kind": "auto", "grep": re.escape(question.text)}
    if not (question.since or question.until):
        values["since"] = _BODIES_SINCE
    return question.address("/search", **values)


async def _oldest_ms(question: Question, look_up: LookUps) -> int | None:
    """Return the time of the oldest message of the topics that were asked for, where known."""
    if not question.topic or question.end is None:
        return None
    try:
        answers = await look_up.topics_answers(question.sources, question.topic.split(","))
    except RocketLensError:
        return None
    topics = (each for _, answer in answers for each in answer.topics)
    times = [each.oldest_ms for each in topics if each.oldest_ms is not None]
    return min(times) if all(answer.complete for _, answer in answers) and times else None
