"""Finds the field of the form of a search that is wrong, and the position in it, by its error."""

from typing import Final, NamedTuple

from markupsafe import Markup

from rocketlens.console.search.question import Question
from rocketlens.model.text.sentences import Sentence

_OF_FILTER: Final = frozenset({"wrong_at", "wrong_at_found"})
_OF_PATTERN: Final = frozenset(
    {"pattern_empty", "pattern_too_long", "pattern_too_large", "pattern_wrong"}
)
_OF_TIME: Final = frozenset({"not_a_time", "not_of_calendar"})


class FormMark(NamedTuple):
    """A field whose text is wrong."""

    field: str
    """A field of `Question`: ``where``, ``grep``, ``since``, ``until``, or ``text`` for the box."""
    at: int | None = None
    """The first character that cannot be there, from 0; None if all of it is wrong."""


def mark_of(question: Question, message: str) -> FormMark | None:
    """Return the field that an error is about; None if it is about none, or that is not known."""
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
        # A filter has patterns, too, in quotes.
        return FormMark("grep" if question.grep else "where")
    if wrong.name in _OF_TIME:
        return _of_time(question, str(wrong.values["option"]))
    return _of_time(question, "since") if wrong.name == "since_after_until" else None


def field_mark(mark: FormMark | None, field: str) -> Markup:
    """Return the attributes that a field of the form has for a mark; none if it is of another."""
    if mark is None or mark.field != field:
        return Markup("")
    at = "" if mark.at is None else f' data-error-at="{mark.at}"'
    return Markup(' aria-invalid="true" aria-describedby="failure"{}').format(Markup(at))  # noqa: S704 - it has a number


def _of_time(question: Question, option: str) -> FormMark:
    if option not in ("since", "until"):
        return FormMark("where")
    # It may stand in the box, as a word of its own.
    typed = question.since if option == "since" else question.until
    return FormMark(option if typed else "text")
