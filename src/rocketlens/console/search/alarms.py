"""Alarms: saved searches whose message must be stored, or consumed by a group, by a time.

Each is asked of one source as `rocketlens watch` asks, while the console runs. The result is kept
with the search. One whose time passes while no console runs is asked when the next one starts.
"""

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import ConfigDict, Field

from rocketlens.client.all_sources import story_source
from rocketlens.console.preferences import is_day, time_of, zone_named
from rocketlens.console.sources.sources import Sources, message_path
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.values import ConsoleValue
from rocketlens.errors import BadInput, MessageNotFound, RocketLensError
from rocketlens.model.life import time_text
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.expect import ExpectRequest, expect_steps
from rocketlens.query.source import run_in_loop

if TYPE_CHECKING:
    from rocketlens.console.search.question import Question
    from rocketlens.console.search.saved_searches import SavedSearch, SavedSearches

MAX_CONSOLE_ALARMS: Final = 100
"""Alarms of all users of a console that wait at once: each takes some requests a minute."""
MAX_USER_ALARMS: Final = 30
"""Of these for one user."""
_PAUSE_S: Final = 10.0
"""Seconds between two questions of one alarm, but before its time."""
_LOOK_S: Final = 60.0
"""Seconds after which alarms that another console of the account has made are found."""
_KEPT_WHY: Final = 1_000
"""Characters of an error that are kept."""
_logger: Final = logging.getLogger("rocketlens.console")


class Alarm(ConsoleValue):
    """What is expected of a saved search, and what came of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    by_ms: int
    group: str = Field(description="that shall have consumed it; empty: it shall be stored")
    source: str
    source_title: str
    state: Literal["waiting", "came", "missed", "unknown"] = "waiting"
    came_ms: int | None = Field(
        default=None, description="when it was stored, or seen to be consumed"
    )
    path: str = Field(default="", description="the address of the message's page, if it came")
    why: str = Field(
        default="", description="what could not be asked, or what the group did instead"
    )

    @classmethod
    def of_form(
        cls, question: "Question", sources: Sources, by: str, group: str, zone: str
    ) -> Self:
        """Return the alarm of a question; a time without a zone is of this one.

        :raises BadInput: if it asks for more than a key, topics and one source, or the time has
            passed.
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
        if by_ms <= time.time_ns() // 1_000_000:
            raise BadInput(Sentence("alarm_passed", time=time_text(by_ms)))
        (one,) = chosen
        return cls(by_ms=by_ms, group=group.strip(), source=one.name, source_title=one.title)


class Alarms:
    """Asks for what the alarms of a console expect; belongs to one event loop."""

    def __init__(self, saved: "SavedSearches", sources: Sources) -> None:
        self._saved: Final = saved
        self._sources: Final = sources
        self._tasks: Final[dict[str, asyncio.Task[None]]] = {}

    def start(self) -> None:
        """Ask until :meth:`close`."""
        self._tasks[""] = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Ask no more."""
        tasks = list(self._tasks.values())
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        opened = {(each.name, each.title): each for each in self._sources.opened}
        while True:
            self._saved.changed.clear()
            waiting = {}
            # Pages say why a file cannot be read.
            with suppress(RocketLensError, OSError):
                waiting = {each.name: each for each in await self._saved.waiting()}
            for name in self._tasks.keys() - waiting.keys() - {""}:
                self._tasks[name].cancel()
            for name in waiting.keys() - self._tasks.keys():
                alarm = waiting[name].alarm
                source = alarm and opened.get((alarm.source, alarm.source_title))
                if alarm and source:
                    self._tasks[name] = asyncio.create_task(self._ask(waiting[name], alarm, source))
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._saved.changed.wait()

    async def _ask(self, saved: "SavedSearch", alarm: Alarm, source: ConsoleSource) -> None:
        """Ask until the alarm has ended, and keep its result."""
        try:
            values = await _result(saved, alarm, source)
        except MessageNotFound as error:
            values = {"state": "missed", "why": str(error)[:_KEPT_WHY] if alarm.group else ""}
        except (RocketLensError, OSError) as error:
            values = {"state": "unknown", "why": str(error)[:_KEPT_WHY]}
        try:
            await self._saved.end(saved.name, alarm.model_copy(update=values))
        except (RocketLensError, OSError):
            # It is asked again: the answer is the same.
            _logger.warning("the result of an alarm was not written", exc_info=True)
        finally:
            del self._tasks[saved.name]


async def _result(saved: "SavedSearch", alarm: Alarm, source: ConsoleSource) -> dict[str, Any]:
    asked = dict(saved.asked)
    request = ExpectRequest.parse(
        asked.get("q", ""),
        saved.topics or None,
        by=alarm.by_ms,
        consumed_by=alarm.group or None,
        made_ms=saved.time_ms,
    )
    kind: Any = asked.get("kind", "auto")

    async def wait(seconds: float) -> None:
        left_s = alarm.by_ms / 1000 - time.time()
        await asyncio.sleep(max(seconds, min(_PAUSE_S, left_s)))

    request = replace(request, message=replace(request.message, kind=kind))
    found = await run_in_loop(expect_steps(request, lambda: story_source(source.source), wait))
    return {
        "state": "came",
        "came_ms": time.time_ns() // 1_000_000 if alarm.group else found.store_timestamp_ms,
        "path": message_path(source.name, found, await source.broker_of(found)),
    }
