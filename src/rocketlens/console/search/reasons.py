"""Help beside an answer.

* `mark_of`: the wrong field of the form, and its wrong character.
* `reasons_for`: why a complete answer can be empty, and wider searches.
* `notes_of`: parts that a search left out or seems to misread, and better searches.
"""

import asyncio
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from markupsafe import Markup
from msgspec import Struct, field
from msgspec.structs import replace

from rocketlens.console.search.question import Question
from rocketlens.console.sources.sources import Sources
from rocketlens.console.status.lists import ask_all
from rocketlens.console.values import CoverageValue, SearchAnswer
from rocketlens.errors import RocketLensError
from rocketlens.model.fields import PROPERTY
from rocketlens.model.message_id import nearly_message_id
from rocketlens.model.text.nearest import nearest
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.topic import TopicsAnswer
from rocketlens.query.topic_choice import is_pattern

_SHOWN: Final = 3
_KEY_KINDS: Final = frozenset({"auto", "key"})
_INVISIBLE: Final = frozenset({"Cf", "Mn", "Me"})
_BETWEEN: Final = re.compile(r"[\s\u3001-\u303f\uff01-\uff0f\uff1a-\uff20]+")
"""Separators of words: white space, and full-width Chinese punctuation."""
_BODIES_SINCE: Final = "24h"
"""A search in bodies reads all messages since then, as bodies are not indexed."""
_OF_FILTER: Final = frozenset({"wrong_at", "wrong_at_found"})
_OF_PATTERN: Final = frozenset(
    {"pattern_empty", "pattern_too_long", "pattern_too_large", "pattern_wrong"}
)
_OF_TIME: Final = frozenset({"not_a_time", "not_of_calendar"})
_OF_POSITION: Final = ("no_such_queue", "queue_begins", "queue_ends")
_NAMES: Final = ("left_out", "no_such_property", "no_topic", "no_topic_but", *_OF_POSITION)


class EmptyReason(Struct, frozen=True):
    """A reason: the name and the values of its text, and the address of a wider search."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    wider: str | None = None


async def reasons_for(
    question: Question, answer: SearchAnswer, sources: Sources
) -> list[EmptyReason]:
    """Return likely reasons for an empty complete answer, the most certain first; none for other
    answers, or if a note has the reason.
    """
    if answer.messages or not answer.complete or question.cursor is not None:
        return []
    if any(each.name in _OF_POSITION for each in notes_of(question, answer.coverage)):
        return []
    reasons = _mistaken_id(question)

    def add_wider(name: str, **changes: Any) -> None:
        reasons.append(EmptyReason(name, wider=question.address("/search", **changes)))

    oldest_ms = await _oldest_ms(question, sources)
    if oldest_ms is not None and (question.end or oldest_ms) < oldest_ms:
        reasons.append(EmptyReason("before_oldest", {"oldest_ms": oldest_ms}))
    if question.since or question.until:
        add_wider("outside_times", since="", until="")
    if question.tag:
        add_wider("other_tag", tag="")
    if question.has_filter:
        rest = replace(question, where="", grep="")
        wider = None if rest.is_empty else rest.address("/search")
        reasons.append(EmptyReason("filtered", wider=wider))
    plain = _cleaned_key(question.text) if question.kind in _KEY_KINDS else ""
    if plain not in ("", question.text):
        add_wider("marks", text=plain)
    if question.text and question.topic:
        add_wider("other_topic", topic="")
    if question.kind != "auto" and question.text:
        add_wider("other_kind", kind="auto")
    if question.sources and len(sources) > 1:
        add_wider("other_source", sources=())
    if question.text:
        wider = None if question.has_filter else _in_bodies(question)
        reasons.append(EmptyReason("no_key", wider=wider))
        reasons.append(EmptyReason("whole_key", wider=_other_case(question)))
    reasons.append(EmptyReason("expired"))
    return reasons[:_SHOWN]


async def topics_instead(question: Question, sources: Sources) -> list[tuple[str, str]]:
    """Return similar topics with the address of the same search in each; none for patterns."""
    if not question.topic or is_pattern(question.topic) or "," in question.topic:
        return []
    answers = await asyncio.gather(
        *(each.topic_names() for each in sources.chosen(question.sources)), return_exceptions=True
    )
    names = {name for each in answers if not isinstance(each, BaseException) for name in each}
    return [
        (name, question.address("/search", topic=name, cursor=None))
        for name in nearest(question.topic, names)
    ]


def _mistaken_id(question: Question) -> list[EmptyReason]:
    """Return a reason if the text looks like an id with a typing error."""
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
    """Return the address of the search in upper or lower case; None without letters."""
    other = next(
        (t for t in (question.text.upper(), question.text.lower()) if t != question.text), ""
    )
    return question.address("/search", text=other) if other else None


def _cleaned_key(text: str) -> str:
    """Return the likely key in a pasted text: without invisible characters and surrounding
    punctuation. Of several words it is the last one with a digit.
    """
    visible = "".join(each for each in text if unicodedata.category(each) not in _INVISIBLE)
    marks = "".join({each for each in visible if unicodedata.category(each)[0] == "P"})
    parts = [each for word in _BETWEEN.split(visible) if (each := word.strip(marks))]
    numbers = [each for each in parts if any(map(str.isdigit, each))]
    return (numbers or parts or [""])[-1]


def _in_bodies(question: Question) -> str:
    """Return the address of a search in bodies, of one day unless the question has times."""
    values: dict[str, Any] = {"text": "", "kind": "auto", "grep": re.escape(question.text)}
    if not (question.since or question.until):
        values["since"] = _BODIES_SINCE
    return question.address("/search", **values)


async def _oldest_ms(question: Question, sources: Sources) -> int | None:
    """Return the time of the oldest message in the topics of the question; None if unknown."""
    if not question.topic or question.end is None:
        return None
    try:
        topics = [each.strip() for each in question.topic.split(",")]
        chosen = sources.chosen(question.sources)
        answers = await ask_all(chosen, lambda each: each.topics(topics), TopicsAnswer)
    except RocketLensError:
        return None
    found = (each for _, answer in answers for each in answer.topics)
    times = [each.oldest_ms for each in found if each.oldest_ms is not None]
    return min(times) if all(answer.complete for _, answer in answers) and times else None


class FormMark(NamedTuple):
    """A wrong field of the form."""

    field: str
    """``where``, ``grep``, ``since``, ``until``, or ``text`` for the search box."""
    at: int | None = None
    """The index of the first wrong character; None for the whole field."""


def mark_of(question: Question, message: str) -> FormMark | None:
    """Return the field that an error is about; None if there is none."""
    if not isinstance(message, Sentence):
        return None
    wrong = message.values["error"] if message.name == "with_hint" else message
    if not isinstance(wrong, Sentence):
        return None
    if wrong.name in _OF_FILTER and question.where:
        number = wrong.values["number"]
        return FormMark("where", int(str(number)) - 1)
    if wrong.name == "filter_too_long":
        return FormMark("where")
    if wrong.name in _OF_PATTERN:
        # A filter can also have patterns, in quotes.
        return FormMark("grep" if question.grep else "where")
    if wrong.name in _OF_TIME:
        return _mark_time(question, str(wrong.values["option"]))
    return _mark_time(question, "since") if wrong.name == "since_after_until" else None


def field_mark(mark: FormMark | None, field: str) -> Markup:
    """Return the HTML attributes of a field for a mark."""
    if mark is None or mark.field != field:
        return Markup("")
    at = "" if mark.at is None else f' data-error-at="{mark.at}"'
    return Markup(' aria-invalid="true" aria-describedby="failure"{}').format(Markup(at))  # noqa: S704 - it has a number


def _mark_time(question: Question, option: str) -> FormMark:
    if option not in ("since", "until"):
        return FormMark("where")
    # Times can also be words in the search box.
    typed = question.since if option == "since" else question.until
    return FormMark(option if typed else "text")


class AnswerNote(NamedTuple):
    """A note on an answer, and the address of a better search."""

    name: str
    source: str
    """The source of the note, if there are several."""
    text: Sentence
    instead: str | None


def notes_of(question: Question, coverage: Sequence[CoverageValue]) -> list[AnswerNote]:
    """Return the notes in the coverage of an answer."""
    notes = [
        (each.source, each.note)
        for each in coverage
        if isinstance(each.note, Sentence) and each.note.name in _NAMES
    ]
    several = len({source.partition(": ")[0] for source, _ in notes}) > 1
    return [
        AnswerNote(
            text.name,
            source.partition(": ")[0] if several else "",
            text,
            _suggested_search(question, text),
        )
        for source, text in notes
    ]


def _suggested_search(question: Question, text: Sentence) -> str | None:
    if text.name == "left_out":
        return question.address("/search", all_topics=True, cursor=None)
    if text.name == "no_topic_but":
        meant = str(text.values["meant"]).partition(", ")[0]
        _, *rest = question.text.split("/")
        return question.address("/search", text="/".join((meant, *rest)), cursor=None)
    if text.name != "no_such_property":
        return None
    name, path = str(text.values["name"]), str(text.values["path"])
    where = _with_path(question.where, name, path)
    if where == question.where:
        return None
    other = question.address("/search", where=where, cursor=None)
    try:
        Question.read(where=where).request()
    except RocketLensError:
        return None
    return other


def _with_path(where: str, name: str, path: str) -> str:
    """Return a filter with a path instead of a property; quoted texts stay unchanged."""
    word = re.compile(rf"(?<![\w.$@'-])(?:{PROPERTY}\.)?{re.escape(name)}(?![\w.$@(\[-])")
    parts = where.split("'")
    parts[::2] = [word.sub(lambda _: path, part) for part in parts[::2]]
    return "'".join(parts)
