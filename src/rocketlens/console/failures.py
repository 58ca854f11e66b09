"""Errors as answers: a status, a word for programs, and what was searched.

===========================  ======  ==================================================
error                        status  code
===========================  ======  ==================================================
BadInput                     400     ``bad_input``
MessageNotFound              404     ``not_found``: everything was searched
TopicNotFound                404     ``no_topic``
ActRefused                   403     ``not_allowed``
PlanChanged                  409     ``changed``: nothing was done
ConsoleBusy                  429     ``busy``
AnswerIncomplete             502     ``incomplete``: something could not be searched
any other of RocketLens      502     ``failed``
===========================  ======  ==================================================
"""

from typing import Final, NamedTuple

from rocketlens.console.act.permission import ActRefused
from rocketlens.console.act.plans import PlanChanged
from rocketlens.console.login.audit import AuditFailed
from rocketlens.console.room import ConsoleBusy
from rocketlens.console.values import ErrorAnswer, error_answer
from rocketlens.errors import (
    AnswerIncomplete,
    BadInput,
    MessageNotFound,
    RocketLensError,
    TopicNotFound,
)
from rocketlens.model.text.escape import printable
from rocketlens.model.text.sentences import Sentence


class Failure(NamedTuple):
    """An error as an answer."""

    status: int
    answer: ErrorAnswer


_STATUS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (BadInput, 400, "bad_input"),
    (MessageNotFound, 404, "not_found"),
    (TopicNotFound, 404, "no_topic"),
    (ActRefused, 403, "not_allowed"),
    (PlanChanged, 409, "changed"),
    (ConsoleBusy, 429, "busy"),
    (AuditFailed, 503, "failed"),
    (AnswerIncomplete, 502, "incomplete"),
    (RocketLensError, 502, "failed"),
    (OSError, 502, "failed"),
)


def failure_of(error: Exception) -> Failure | None:
    """Return an error as an answer; None for one that is a mistake of the program."""
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            coverage = error.answer.coverage if isinstance(error, AnswerIncomplete) else ()
            return Failure(status, error_answer(code, _text_of(error), coverage))
    return None


def known_failure(error: Exception) -> Failure:
    """Return an error as an answer; raise one that is a mistake of the program."""
    failure = failure_of(error)
    if failure is None:
        raise error
    return failure


def _text_of(error: Exception) -> str:
    """Return the text of an error, safe to show; a sentence stays one, for other languages."""
    text = error.args[0] if len(error.args) == 1 else None
    if isinstance(text, Sentence) and printable(text) == text:
        return text
    return printable(str(error))
