"""What an answer leaves out or seems to misread, although it is complete, and the search to make
instead.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from rocketlens.console.search.question import Question
from rocketlens.console.values import CoverageValue
from rocketlens.errors import RocketLensError
from rocketlens.model.text.sentences import Sentence

_NAMES: Final = ("left_out", "no_such_property", "no_topic_but")


class AnswerNote(NamedTuple):
    """A note: its name, what of the search it is about, and the address of the other search."""

    name: str
    source: str
    """The source that says so, if there are several."""
    text: Sentence
    instead: str | None


def notes_of(question: Question, coverage: Sequence[CoverageValue]) -> list[AnswerNote]:
    """Return the notes that the coverage of an answer has."""
    notes = [
        (each.source, each.error)
        for each in coverage
        if isinstance(each.error, Sentence) and each.error.name in _NAMES
    ]
    several = len({source.partition(":")[0] for source, _ in notes}) > 1
    return [
        AnswerNote(
            text.name,
            source.partition(":")[0] if several else "",
            text,
            _instead(question, text),
        )
        for source, text in notes
    ]


def _instead(question: Question, text: Sentence) -> str | None:
    if text.name == "left_out":
        return question.address("/search", all_topics=True, cursor=None)
    if text.name == "no_topic_but":
        meant = str(text.values["meant"]).partition(", ")[0]
        _, *rest = question.text.split("/")
        return question.address("/search", text="/".join((meant, *rest)), cursor=None)
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
    """Return a filter with a path in place of a property; texts in quotes stay as they are."""
    word = re.compile(rf"(?<![\w.$@'-])(?:prop\.)?{re.escape(name)}(?![\w.$@(\[-])")
    parts = where.split("'")
    parts[::2] = [word.sub(lambda _: path, part) for part in parts[::2]]
    return "'".join(parts)
