"""Saved searches: questions under a title, never their answers.

They are in one file of the user who runs the console, beside the directory of jobs::

    {"version": 1, "searches": [
        {"name": "20261120T103102-0f...", "title": "unpaid", "user": "li", "is_shared": true,
         "time_ms": ..., "asked": [["topic", "orders"], ...], "topics": ["orders"], "sources": []}]}

A search with an ``alarm`` expects a message: see `rocketlens.console.search.alarms`. Each change
replaces the file. A damaged file is an error, and stays as it is.

A search belongs to its user, or is shared with all users who may see every topic and source that it
names. If its filter can name further topics, it is shared with users who may see all topics. The
same users see the result of an alarm, unless the search names all its topics in full.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import Path as PathPart
from fastapi import Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rocketlens import limits
from rocketlens.console.act.jobs import new_name
from rocketlens.console.act.permission import ActRefused, current_login
from rocketlens.console.act.plans import FILE_THREADS
from rocketlens.console.login.viewer import current_viewer
from rocketlens.console.pages import (
    ERRORS,
    SEE_OTHER,
    Asked,
    Here,
    HereNow,
    answer_or_error,
    api_router,
    form_of,
    page_router,
)
from rocketlens.console.room import ConsoleBusy
from rocketlens.console.search.alarms import MAX_CONSOLE_ALARMS, MAX_USER_ALARMS, Alarm
from rocketlens.console.search.question import NOTHING_ASKED, Question
from rocketlens.console.search.search import Searches
from rocketlens.console.sources.visible import ConsoleSource, narrowed_topics
from rocketlens.console.values import ConsoleRequest, ConsoleValue, ErrorAnswer
from rocketlens.errors import BadInput, MessageNotFound, RocketLensError, StoreLocked
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.topic import TopicKind
from rocketlens.net.pace import in_thread
from rocketlens.query.filters.where import TOPIC, parse_where
from rocketlens.query.request import FindRequest
from rocketlens.query.topic_choice import is_pattern
from rocketlens.store.disk import Disk
from rocketlens.store.lock import StoreLock
from rocketlens.terminal.cluster_access import saved_searches_path

MAX_SAVED_SEARCHES: Final = 1_000
"""Saved searches of all users, which are one file."""
MAX_USER_SAVED_SEARCHES: Final = 100
"""Saved searches of one user."""
MAX_SAVED_CHARACTERS: Final = 4_000
"""Characters of a saved search as an address: a page lists all of them."""
MAX_SAVED_BYTES: Final = 16 << 20
"""Bytes of the file: the largest possible content takes 10 MB."""


class SavedSearch(BaseModel):
    """A saved search."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    """The server's name for it, for addresses."""
    title: str
    user: str
    """Empty in a console without users."""
    is_shared: bool
    time_ms: int
    asked: tuple[tuple[str, str], ...]
    """Query parameters."""
    topics: tuple[str, ...]
    """Names and patterns in the question."""
    sources: tuple[str, ...]
    alarm: Alarm | None = None

    @property
    def is_waiting(self) -> bool:
        """True if it has an alarm without a result."""
        return self.alarm is not None and self.alarm.state == "waiting"

    @property
    def query(self) -> str:
        """The query part of its address."""
        return urlencode(self.asked)

    def is_for(self, question: Question) -> bool:
        return list(self.asked) == question.parameters(cursor=None)


class _SavedFile(BaseModel):
    version: Literal[1] = 1
    searches: list[SavedSearch]


class SavedSearches:
    """The saved searches that the current user may see and change."""

    def __init__(
        self,
        searches: Searches,
        path: Path | None = None,
        disk: Disk | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """:param path: The file; None for that of the user who runs the console."""
        self._searches: Final = searches
        self._all_sources: Final = tuple(each.name for each in searches.sources.opened)
        self.path: Final = path or saved_searches_path()
        self._disk: Final = disk or Disk()
        self._clock_ns: Final = clock_ns

    async def seen(self, *, everything: bool = False) -> list[SavedSearch]:
        """Return the user's own searches and shared ones, newest first.

        ``everything`` adds private ones of others if the user is administrator of their sources.

        :raises RocketLensError: if the file is damaged.
        :raises OSError: if it cannot be read.
        """
        searches = await in_thread(self._read, FILE_THREADS)
        shown = [
            each
            for each in searches
            if self._is_seen(each) or (everything and self._is_admin(each))
        ]
        # The file has the oldest first.
        return shown[::-1]

    async def save(
        self, question: Question, title: str, *, is_shared: bool, alarm: Alarm | None = None
    ) -> SavedSearch:
        """Save a question under a title.

        :raises BadInput: if title or question cannot be used, the user has that title already, or
            there are too many searches.
        :raises AuditFailed: if the audit log cannot be written.
        :raises ConsoleBusy: if another program changes the file now.
        :raises RocketLensError: if the file is damaged; errors as `seen`.
        """
        if alarm is not None:
            question = replace(question, sources=(alarm.source,))
        saved = self._new_search(question, title, alarm, is_shared=is_shared)
        _check_room(await in_thread(self._read, FILE_THREADS), saved)
        more = {} if alarm is None else {"by_ms": str(alarm.by_ms), "group": alarm.group}
        self._searches.audit.record(
            "save-search", title=saved.title, asked=dict(saved.asked), shared=is_shared, **more
        )

        def added(searches: Sequence[SavedSearch]) -> list[SavedSearch]:
            _check_room(searches, saved)
            return [*searches, saved]

        await in_thread(lambda: self._change(added), FILE_THREADS)
        return saved

    async def delete(self, name: str) -> SavedSearch:
        """Delete an own search, or any as administrator of its sources; return it.

        :raises MessageNotFound: if the user sees no such search.
        :raises ActRefused: if it is another user's.
        """
        searches = await in_thread(self._read, FILE_THREADS)
        saved = next((each for each in searches if each.name == name), None)
        if saved is None or not (self._is_seen(saved) or self._is_admin(saved)):
            raise MessageNotFound(Sentence("no_saved_search", name=repr(name[:80])))
        if not self.may_delete(saved):
            raise ActRefused(Sentence("saved_by_other", title=repr(saved.title), user=saved.user))
        self._searches.audit.record("delete-search", title=saved.title, owner=saved.user)
        await in_thread(
            lambda: self._change(lambda each: [s for s in each if s.name != name]), FILE_THREADS
        )
        return saved

    async def waiting(self) -> list[SavedSearch]:
        """Return the searches of all users with waiting alarms; errors as `seen`."""
        return [each for each in await in_thread(self._read, FILE_THREADS) if each.is_waiting]

    async def end(self, ended: Mapping[str, Alarm]) -> None:
        """Save the results of alarms, by search name; errors as `save`."""

        def changed(searches: Sequence[SavedSearch]) -> list[SavedSearch]:
            alarms = [(each, {"alarm": ended.get(each.name, each.alarm)}) for each in searches]
            return [each.model_copy(update=alarm) for each, alarm in alarms]

        if ended:
            await in_thread(lambda: self._change(changed), FILE_THREADS)

    def alarm_of(self, saved: SavedSearch) -> Alarm | None:
        """Return the alarm of a search. What the user may not see of its result is hidden."""
        alarm, why = saved.alarm, ""
        if alarm is None:
            return None
        opened = {(each.name, each.title) for each in self._searches.sources.opened}
        is_elsewhere = (alarm.source, alarm.source_title) not in opened
        if saved.is_waiting and is_elsewhere and self._clock_ns() > alarm.by_ms * 1_000_000:
            why = Sentence("alarm_unchecked")
        if not _may_see_result(saved, alarm):
            why = Sentence("not_shown")
        if why:
            return alarm.model_copy(update={"state": "unknown", "path": "", "why": why})
        source = alarm.source
        is_open = current_viewer().sees_all(source) and not self._searches.hides_in(source)
        hidden = {"why": Sentence("not_shown")} if alarm.why and not is_open else {}
        return alarm.model_copy(update=hidden)

    def is_own(self, saved: SavedSearch) -> bool:
        return saved.user == current_login()

    def may_delete(self, saved: SavedSearch) -> bool:
        return self.is_own(saved) or self._is_admin(saved)

    def _new_search(
        self, question: Question, title: str, alarm: Alarm | None, *, is_shared: bool
    ) -> SavedSearch:
        title = " ".join(title.split())
        if not 1 <= len(title) <= limits.MAX_SAVED_TITLE:
            raise BadInput(Sentence("saved_title", limit=limits.MAX_SAVED_TITLE))
        if question.is_empty:
            raise BadInput(NOTHING_ASKED)
        request, _ = self._searches.check(question)
        made = SavedSearch(
            name=new_name(),
            title=title,
            user=current_login(),
            is_shared=is_shared,
            time_ms=self._clock_ns() // 1_000_000,
            asked=tuple(question.parameters(cursor=None)),
            topics=_topics_in(request),
            sources=question.sources,
            alarm=alarm,
        )
        if alarm is not None and not _may_see_result(made, alarm):
            raise BadInput(Sentence("alarm_topics"))
        if len(made.query) + len("" if alarm is None else alarm.group) > MAX_SAVED_CHARACTERS:
            raise BadInput(Sentence("saved_too_long", limit=MAX_SAVED_CHARACTERS))
        return made

    def _is_seen(self, saved: SavedSearch) -> bool:
        if self.is_own(saved):
            return True
        try:
            chosen = self._searches.sources.chosen(saved.sources)
        except BadInput:
            return False
        if not saved.is_shared or not (saved.alarm is None or _may_see_result(saved, saved.alarm)):
            return False
        if _may_name_others(saved):
            viewer = current_viewer()
            return all(viewer.sees_all(source.name) for source in chosen)
        return all(any(_is_visible(source, topic) for source in chosen) for topic in saved.topics)

    def _is_admin(self, saved: SavedSearch) -> bool:
        names = saved.sources or self._all_sources
        return all(current_viewer().may_unmask_all(each) for each in names)

    def _read(self) -> list[SavedSearch]:
        try:
            with self.path.open("rb") as file:
                content = file.read(MAX_SAVED_BYTES + 1)
        except FileNotFoundError:
            return []
        why = f"it has over {MAX_SAVED_BYTES} bytes"
        try:
            if len(content) <= MAX_SAVED_BYTES:
                return _SavedFile.model_validate_json(content).searches
        except ValidationError as error:
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RocketLensError(Sentence("saved_damaged", path=self.path, why=why[:200]))

    def _change(self, change: Callable[[Sequence[SavedSearch]], list[SavedSearch]]) -> None:
        self._disk.make_directory_durably(self.path.parent)
        try:
            lock = StoreLock(self.path.parent, f"{self.path.name}.lock")
        except StoreLocked:
            raise ConsoleBusy(Sentence("saved_busy")) from None
        try:
            changed = _SavedFile(searches=change(self._read()))
            content = json.dumps(changed.model_dump(exclude_none=True), indent=1)
            self._disk.write_durably(self.path, content.encode("ascii"))
        finally:
            lock.release()


def _check_room(searches: Sequence[SavedSearch], saved: SavedSearch) -> None:
    """:raises BadInput: if the search cannot be added to the others."""
    own = [each for each in searches if each.user == saved.user]
    if any(each.title == saved.title for each in own):
        raise BadInput(Sentence("saved_twice", title=repr(saved.title)))
    if len(own) >= MAX_USER_SAVED_SEARCHES:
        raise BadInput(Sentence("saved_full", count=len(own)))
    if len(searches) >= MAX_SAVED_SEARCHES:
        raise BadInput(Sentence("saved_full_all", count=len(searches)))
    for several, most in ((own, MAX_USER_ALARMS), (searches, MAX_CONSOLE_ALARMS)):
        if saved.is_waiting and sum(each.is_waiting for each in several) >= most:
            raise BadInput(Sentence("alarms_full", count=most))


def _may_see_result(saved: SavedSearch, alarm: Alarm) -> bool:
    """Return whether the user may see all topics of an alarm."""
    viewer, source = current_viewer(), alarm.source
    # Retries, dead letters and delayed messages can be copies of hidden ones.
    return viewer.sees_all(source) or (
        bool(saved.topics)
        and all(viewer.may_see(source, each) and not is_pattern(each) for each in saved.topics)
        and all(TopicKind.of(each) is TopicKind.NORMAL for each in saved.topics)
    )


def _topics_in(request: FindRequest) -> tuple[str, ...]:
    """Return the topics that a question names: in its field, in a position, and in its filter."""
    position = request.queue_position
    where = None if request.content is None else request.content.where
    filtered = () if where is None else where.texts_of("topic") or ()
    named = () if position is None else (position.topic,)
    return tuple(dict.fromkeys((*request.topics, *named, *sorted(filtered))))


def _may_name_others(saved: SavedSearch) -> bool:
    """Return whether the filter can name topics that `_topics_in` did not find."""
    text = dict(saved.asked).get("where", "")
    try:
        return bool(text) and not parse_where(text).implies_all_texts(TOPIC)
    except BadInput:
        # Saved by another version, with other filters.
        return True


def _is_visible(source: ConsoleSource, topic: str) -> bool:
    """Return whether any part of a name or pattern is visible in a source."""
    name = source.plain(topic)
    try:
        return bool(narrowed_topics([name], current_viewer().patterns(source.name))[name])
    except BadInput:
        return False


_Name = Annotated[str, PathPart(max_length=40)]
_Everything = Annotated[
    bool, Query(alias="all", description="for administrators: also private searches of other users")
]
_API_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: ERRORS[400],
    403: {"model": ErrorAnswer, "description": "it is another user's"},
    404: {"model": ErrorAnswer, "description": "there is no such search"},
    415: {"model": ErrorAnswer, "description": "the request is not JSON"},
    429: {"model": ErrorAnswer, "description": "another program changes them: try again"},
    502: {"model": ErrorAnswer, "description": "the file of saved searches cannot be read"},
}
_PAGE: Final = "/saved"
api = api_router(_API_ERRORS)
pages = page_router()


class SaveRequest(ConsoleRequest):
    """The title of the search in the address."""

    title: str = Field(description="its name; no two searches of one user have the same")
    is_shared: bool = Field(default=False, description="with users who may see topics and sources")
    by: str = Field(default="", description="an alarm: the deadline: 09:00, in 2h, ...")
    group: str = Field(default="", description="with by: the group that must have consumed it")


class SavedSearchValue(ConsoleValue):
    """A saved search: its question, not its answer."""

    name: str = Field(description="its identifier in addresses")
    title: str
    user: str = Field(description="who saved it; empty in a console without users")
    is_own: bool
    is_shared: bool
    may_delete: bool
    time_ms: int = Field(description="when it was saved")
    query: str = Field(description="the query string, after /search? or /api/search?")
    alarm: Alarm | None


class SavedSearchesValue(ConsoleValue):
    """The user's own searches and shared ones, newest first."""

    searches: list[SavedSearchValue]


def _value_of(here: HereNow, search: SavedSearch) -> SavedSearchValue:
    saved = here.console.saved
    return SavedSearchValue.of(
        search,
        is_own=saved.is_own(search),
        may_delete=saved.may_delete(search),
        alarm=saved.alarm_of(search),
    )


async def failed_alarms(here: HereNow) -> tuple[list[SavedSearchValue], str | None]:
    """Return the searches with missed or unknown alarms, or the error of the file."""
    searches, error = await answer_or_error(here.console.saved.seen())
    if error is not None:
        return [], error.message
    values = [_value_of(here, each) for each in searches or ()]
    failed = {"missed", "unknown"}
    return [each for each in values if each.alarm and each.alarm.state in failed], None


def _alarm(here: HereNow, question: Question, by: str, group: str) -> Alarm | None:
    if not by and not group:
        return None
    return Alarm.of_form(question, here.sources, by, group, here.preferences.zone_name)


@api.get("/saved-searches")
async def listed(here: Here, *, everything: _Everything = False) -> SavedSearchesValue:
    """Return the user's own saved searches, and those of others that are shared."""
    searches = await here.console.saved.seen(everything=everything)
    return SavedSearchesValue(searches=[_value_of(here, each) for each in searches])


@api.post("/saved-searches")
async def save(here: Here, question: Asked, body: SaveRequest) -> SavedSearchValue:
    """Save the search in the query parameters, which are those of /api/search without `cursor`."""
    alarm = _alarm(here, question, body.by, body.group)
    saved = await here.console.saved.save(
        question, body.title, is_shared=body.is_shared, alarm=alarm
    )
    return _value_of(here, saved)


@api.delete("/saved-searches/{name}")
async def delete(here: Here, name: _Name) -> SavedSearchValue:
    """Delete a saved search, and return what it was."""
    return _value_of(here, await here.console.saved.delete(name))


@pages.get(_PAGE)
async def _saved_page(here: Here, question: Asked, *, everything: _Everything = False) -> Response:
    return await _list_page(here, question, everything=everything)


@pages.post(_PAGE)
async def _save_page_form(here: Here, question: Asked) -> Response:
    form = await form_of(here.request)
    title, is_shared = form.get("title", ""), form.get("shared") == "true"
    try:
        alarm = _alarm(here, question, form.get("by", ""), form.get("group", ""))
        await here.console.saved.save(question, title, is_shared=is_shared, alarm=alarm)
    except (RocketLensError, OSError) as error:
        return await _list_page(here, question, error=error, typed=form)
    return RedirectResponse(_PAGE, SEE_OTHER)


@pages.post(_PAGE + "/{name}/delete")
async def _delete_form(here: Here, name: _Name) -> Response:
    try:
        await here.console.saved.delete(name)
    except (RocketLensError, OSError) as error:
        return await _list_page(here, Question(), error=error)
    return RedirectResponse(_PAGE, SEE_OTHER)


async def _list_page(
    here: HereNow,
    question: Question,
    *,
    everything: bool = False,
    error: Exception | None = None,
    typed: Mapping[str, str] = MappingProxyType({}),
) -> HTMLResponse:
    """Return the list of saved searches, with a form for the question if there is one."""
    searches: list[SavedSearch] | None = None
    try:
        searches = await here.console.saved.seen(everything=everything)
    except (RocketLensError, OSError) as wrong:
        error = error or wrong
    return here.page_with_error(
        error,
        "saved.html",
        question=question,
        found=searches,
        may_delete=here.console.saved.may_delete,
        alarm_of=here.console.saved.alarm_of,
        everything=everything,
        typed=typed,
    )
