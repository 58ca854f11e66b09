"""Why a complete answer may be empty: reasons in order of evidence, and wider searches."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from rocketlens.console.look_up import LookUps
from rocketlens.console.question import Question
from rocketlens.console.values import SearchAnswer
from rocketlens.errors import RocketLensError
from rocketlens.model.message_id import nearly_message_id

_SHOWN: Final = 3


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
    if question.text and question.topic:
        reasons.append(EmptyReason("other_topic", wider=question.address("/search", topic="")))
    if question.kind != "auto" and question.text:
        reasons.append(EmptyReason("other_kind", wider=question.address("/search", kind="auto")))
    if question.sources and len(look_up.sources) > 1:
        reasons.append(EmptyReason("other_source", wider=question.address("/search", sources=())))
    if question.text:
        reasons.append(EmptyReason("no_key"))
        reasons.append(EmptyReason("whole_key"))
    reasons.append(EmptyReason("expired"))
    return reasons[:_SHOWN]


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


async def _oldest_ms(question: Question, look_up: LookUps) -> int | None:
    """Return the time of the oldest message of the topics that were asked for, where known."""
    if not question.topic or question.end is None:
        return None
    try:
        found = await look_up.topics(question.sources, question.topic.split(","))
    except RocketLensError:
        return None
    times = [each.oldest_ms for each in found.topics if each.oldest_ms is not None]
    return min(times) if found.complete and times else None
