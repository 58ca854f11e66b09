"""Alarms: saved searches whose message must be stored, or consumed by a group, by a deadline.

While the console runs, each alarm asks its source as `rocketlens watch` does. The result is saved
with the search. If a deadline passes while no console runs, the next start checks the alarm.
"""

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast

from msgspec.structs import replace
from pydantic import ConfigDict, Field

from rocketlens.client.all_sources import story_source
from rocketlens.console.preferences import is_day, time_of, zone_named
from rocketlens.console.sources.sources import Sources, message_path
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.values import ConsoleValue
from rocketlens.errors import BadInput, MessageNotFound, RocketLensError
from rocketlens.model.life import time_text
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.expect import ExpectRequest, expect_steps
from rocketlens.query.source import run_in_loop

if TYPE_CHECKING:
    from rocketlens.console.search.question import Question
    from rocketlens.console.search.saved_searches import SavedSearch, SavedSearches
    from rocketlens.query.options import Kind

MAX_CONSOLE_ALARMS: Final = 100
"""Waiting alarms of all users: each sends some requests a minute."""
MAX_USER_ALARMS: Final = 30
"""Waiting alarms of one user."""
_PAUSE_S: Final = 10.0
"""Seconds between two checks."""
_KEPT_WHY: Final = 1_000
"""Characters of an error that are kept."""


class Alarm(ConsoleValue):
    """The deadline of a saved search, the group that must consume its message, and the result."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    by_ms: int
    group: str = Field(description="the group that must consume it; empty: it must be stored")
    source: str
    source_title: str
    state: Literal["waiting", "came", "missed", "unknown"] = "waiting"
    came_ms: int | None = Field(default=None, description="when it was stored or seen consumed")
    path: str = Field(default="", description="the address of the message's page, if it came")
    why: str = Field(default="", description="what failed, or what the group did instead")

    @classmethod
    def of_form(
        cls, question: "Question", sources: Sources, by: str, group: str, zone: str
    ) -> Self:
        """Return the alarm for a question. A time without a zone is in ``zone``.

        :raises BadInput: if the question has more than a key, topics and one source, or the time
            has passed.
        """
        other = question.tag or question.since or question.until or question.has_filter
        if other or not question.text:
            raise BadInput(Sentence("alarm_of_key"))
        chosen = sources.chosen(question.sources)
        if len(chosen) > 1:
            chosen = [each for each in chosen if each.kind == "cluster"]
        if len(chosen) != 1:
            raise BadInput(Sentence("alarm_source"))
        by_ms = time_of(by or "now", "by", zone_named(zone), is_end=is_day(by))
        if by_ms <= _now_ms():
            raise BadInput(Sentence("alarm_passed", time=time_text(by_ms)))
        (one,) = chosen
        return cls(by_ms=by_ms, group=group.strip(), source=one.name, source_title=one.title)


class Alarms:
    """Checks the waiting alarms of a console; belongs to one event loop."""

    def __init__(self, saved: "SavedSearches", sources: Sources) -> None:
        self._saved: Final = saved
        self._opened: Final = {(each.name, each.title): each for each in sources.opened}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            # Pages show why the file cannot be read. An unsaved result is checked again.
            with suppress(RocketLensError, OSError):
                waiting = await self._saved.waiting()
                ended = await asyncio.gather(*map(self._check, waiting))
                await self._saved.end({name: each for name, each in ended if each is not None})
            await asyncio.sleep(_PAUSE_S)

    async def _check(self, saved: "SavedSearch") -> tuple[str, Alarm | None]:
        """Check an alarm once; return its search's name, and the alarm if it has a result."""
        alarm = saved.alarm
        if alarm is None:
            return saved.name, None
        source = self._opened.get((alarm.source, alarm.source_title))
        if source is None:
            return saved.name, None
        values: dict[str, Any]
        try:
            found = await _ask(saved, alarm, source)
            came_ms = _now_ms() if alarm.group else found.store_timestamp_ms
            path = message_path(source.name, found, await source.broker_of(found))
            values = {"state": "came", "came_ms": came_ms, "path": path}
        except _NotYet:
            return saved.name, None
        except MessageNotFound as error:
            values = {"state": "missed", "why": str(error)[:_KEPT_WHY] if alarm.group else ""}
        except Exception as error:  # noqa: BLE001 - it is shown, and the other alarms go on
            values = {"state": "unknown", "why": (str(error) or repr(error))[:_KEPT_WHY]}
        return saved.name, alarm.model_copy(update=values)


class _NotYet(Exception):
    """The message has not come, and there is time left."""


async def _ask(saved: "SavedSearch", alarm: Alarm, source: ConsoleSource) -> MessageExt:
    asked = dict(saved.asked)
    group, kind = alarm.group or None, cast("Kind", asked.get("kind", "auto"))
    key, topics = asked.get("q", ""), saved.topics or None
    request = ExpectRequest.parse(
        key, topics, by=alarm.by_ms, consumed_by=group, made_ms=saved.time_ms
    )
    request = replace(request, message=replace(request.message, kind=kind))

    def wait(_seconds: float) -> None:
        raise _NotYet

    return await run_in_loop(expect_steps(request, lambda: story_source(source.source), wait))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
