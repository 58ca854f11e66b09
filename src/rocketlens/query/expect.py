"""Waits until a message with a key is stored, or consumed by a group.

The source is queried repeatedly. An error before the deadline, for example while a broker restarts,
is retried. The last query, at the deadline, determines the result:

=====================================  ========================================================
the source shows at the deadline       result
=====================================  ========================================================
the message, stored in time            the message
(group) that the group consumed it     the message, unless a trace shows a later time
everything was searched                `MessageNotFound`
something did not answer               `AnswerIncomplete`
(group) an offset past the message     `AnswerIncomplete`: an offset reset has the same effect
=====================================  ========================================================
"""

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final, Self

from msgspec import Struct

from rocketlens.errors import (
    AnswerIncomplete,
    BadInput,
    MessageNotFound,
    PackageMissing,
    RocketLensError,
    TopicNotFound,
    WrongUse,
)
from rocketlens.model.answer import Answer, SourceKind, failure
from rocketlens.model.arguments import check_text
from rocketlens.model.life import time_text
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.facts.group_state import GroupState
from rocketlens.query.find import find_steps, one_message
from rocketlens.query.request import FindRequest, StoryRequest, moment_ms
from rocketlens.query.source import Steps
from rocketlens.query.story.story_search import StorySource, story_steps

MIN_WAIT_S: Final = 2.0
"""Longer than a client takes to reconnect to a restarted broker."""
MAX_WAIT_S: Final = 30.0
_WAIT_FACTOR: Final = 4
"""Ratio of the pause to the duration of a query: queries take a fifth of the time."""
_SEARCHED: Final = "any topic that was searched"
_UNPROVED: Final = frozenset(
    {
        GroupState.UNKNOWN,
        GroupState.PASSED,
        GroupState.PASSED_OFFLINE,
        GroupState.PASSED_BY_RESET,
        GroupState.BROADCASTING,
    }
)
"""States in which it is unknown if the group consumed the message."""


class ExpectRequest(Struct, frozen=True):
    """An expected message: its deadline, and optionally the group that must consume it."""

    message: FindRequest
    group: str | None = None

    @classmethod
    def parse(
        cls,
        key: str,
        topic: str | Iterable[str] | None = None,
        *,
        by: int | datetime | str,
        consumed_by: str | None = None,
        made_ms: int | None = None,
    ) -> Self:
        """Parse the arguments of ``expect``; ``key`` is the text of `find`.

        ``made_ms``: the creation time of the request (default: now).

        :raises BadInput: if ``by`` is not later than that, and as `FindRequest.parse`.
        """
        by_ms = moment_ms(by, "by", is_end=True)
        if by_ms <= (made_ms or _now_ms()):
            raise BadInput(
                f"by is {time_text(by_ms)}, which has passed: give a future time, such as "
                "'in 2h'; `rocketlens find` has what was stored before"
            )
        group = None if consumed_by is None else check_text(consumed_by, "consumed_by")
        message = FindRequest.parse(
            check_text(key, "key"),
            topic,
            end=by_ms,
            max_num=1,
            oldest=True,
            all_topics=group is not None,
            only_delivered=group is None,
        )
        return cls(message, group)


def expect_steps(
    request: ExpectRequest,
    source: Callable[[], StorySource],
    wait: Callable[[float], Any],
    on_event: Callable[[str], None] | None = None,
    clock: Callable[[], int] | None = None,
) -> Steps[MessageExt]:
    """Query a source until it has the expected message, and return the message.

    ``wait`` takes seconds and can return an awaitable. ``on_event`` receives a line when the reason
    for waiting changes. ``clock`` returns epoch milliseconds.

    :raises MessageNotFound: at the deadline, if everything was searched.
    :raises AnswerIncomplete: at the deadline, if something could not be searched.
    :raises BadInput: if the request is invalid for the source.
    """
    clock = clock or _now_ms
    ask = _stored if request.group is None else _consumed
    said, by_ms = "", request.message.end
    while True:
        began_ms = clock()
        try:
            message: MessageExt = yield from ask(request, source())
        except (BadInput, WrongUse, PackageMissing):
            raise
        except (RocketLensError, OSError) as error:
            missing = error
        else:
            return message
        if began_ms >= by_ms:
            raise _ended(request, missing) from missing
        if on_event is not None and said != str(missing):
            said = str(missing)
            on_event(f"not yet: {said}")
        took_s = (clock() - began_ms) / 1000
        pause_s = min(max(_WAIT_FACTOR * took_s, MIN_WAIT_S), MAX_WAIT_S)
        until_end_s = (by_ms - clock()) / 1000
        if until_end_s < pause_s + MIN_WAIT_S:
            pause_s = max(until_end_s, MIN_WAIT_S)
        yield partial(wait, pause_s)


def _stored(request: ExpectRequest, source: StorySource) -> Steps[MessageExt]:
    answer = yield from find_steps(request.message, source.source)
    return one_message(answer, _SEARCHED)


def _consumed(request: ExpectRequest, source: StorySource) -> Steps[MessageExt]:
    """Return a message with the key that the group consumed, according to its story."""
    story = yield from story_steps(StoryRequest(request.message, group=request.group), [source])
    query, by_ms = story.query, request.message.end
    if story.message is None:
        return one_message(Answer(query, (), story.coverage), _SEARCHED)
    reasons, is_known = [], story.complete and not story.others
    for each in (story, *story.more):
        for group in each.groups:
            is_late = group.since_ms is not None and group.since_ms > by_ms
            if group.state is GroupState.CONSUMED and not is_late and each.message is not None:
                return each.message
            is_known &= group.state not in _UNPROVED
            reasons.append(f"{group.state}: {group.rests_on}")
    of_group = str(Sentence("group_did", group=request.group))
    unlearnt = [each for each in story.unlearnt if each.is_failure or each.what == of_group]
    failed = [f"{each.what}: {each.why}" for each in unlearnt]
    why = next(iter((*failed, *reasons)), f"{story.message.position} waits at its broker")
    text = f"{query} is stored, but group {request.group} is not known to have consumed it: {why}"
    if is_known:
        raise MessageNotFound(text)
    raise AnswerIncomplete(text, Answer(query, (), story.coverage))


def _ended(request: ExpectRequest, missing: Exception) -> RocketLensError:
    text = f"{missing} (at {time_text(request.message.end)}, the deadline)"
    if isinstance(missing, MessageNotFound | TopicNotFound):
        return MessageNotFound(text)
    if isinstance(missing, AnswerIncomplete):
        return AnswerIncomplete(text, missing.answer)
    failed = failure("", SourceKind.TOPICS, str(missing))
    return AnswerIncomplete(text, Answer(request.message.query, (), (failed,)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
