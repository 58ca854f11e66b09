"""Searches that were saved under a name: what is asked, never what was found.

They are one file of the user who runs the console, beside the directory of its jobs::

    {"version": 1, "searches": [
        {"name": "20261120T103102-0f...", "title": "unpaid", "user": "li", "is_shared": true,
         "time_ms": ..., "asked": [["topic", "orders"], ...], "topics": ["orders"], "sources": []}]}

Each change replaces the whole file. One that is damaged is an error, and stays as it is.

Each is its user's own, or shared with all users of the console. One that is shared is shown to
those who may see every topic and source that it names: these names are not for others. Where its
filter may name topics in another way than as all that there are, it is shown to those who may see
every topic.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

from rocketlens import limits
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.console.act.jobs import new_name
from rocketlens.console.act.permission import ActRefused
from rocketlens.console.act.plans import FILE_THREADS
from rocketlens.console.login.viewer import LOCAL, current_viewer
from rocketlens.console.room import ConsoleBusy
from rocketlens.console.search.question import NOTHING_ASKED, Question
from rocketlens.console.search.search import Searches
from rocketlens.console.sources.console_source import ConsoleSource
from rocketlens.console.sources.visible import namespace_of, narrowed_topics
from rocketlens.errors import BadInput, MessageNotFound, RocketLensError, StoreLocked
from rocketlens.net.pace import in_thread
from rocketlens.query.filters.where import TOPIC, parse_where
from rocketlens.query.request import FindRequest
from rocketlens.store.disk import Disk
from rocketlens.store.lock import StoreLock
from rocketlens.terminal.cluster_access import saved_searches_path

_VERSION: Final = 1
_Stamp = tuple[int, int, int]
"""Inode, size and time of a file: others for each file that replaces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSearch:
    """One search, as its user saved it."""

    name: str
    """Made by the server, for addresses."""
    title: str
    user: str
    """Empty: of a console without users."""
    is_shared: bool
    time_ms: int
    asked: tuple[tuple[str, str], ...]
    """Names and values, as the address of a search has them."""
    topics: tuple[str, ...]
    """Names and patterns in the question."""
    sources: tuple[str, ...]

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return the search that a value of JSON has.

        :raises ValueError: if it has none.
        """
        names = {"name", "title", "user", "is_shared", "time_ms", "asked", "topics", "sources"}
        if not isinstance(value, dict) or value.keys() != names:
            raise ValueError("a search must have " + ", ".join(sorted(names)))
        texts = [value["name"], value["title"], value["user"]]
        lists = [value["topics"], value["sources"], *value["asked"]]
        if not all(isinstance(each, list) for each in lists):
            raise ValueError("asked, topics and sources must be lists")
        texts += [text for each in lists for text in each]
        is_pair = all(len(each) == 2 for each in value["asked"])
        is_typed = isinstance(value["is_shared"], bool) and isinstance(value["time_ms"], int)
        if not (is_pair and is_typed and all(isinstance(each, str) for each in texts)):
            raise ValueError("a value is of the wrong type")
        return cls(
            **{
                **value,
                "asked": tuple((name, text) for name, text in value["asked"]),
                "topics": tuple(value["topics"]),
                "sources": tuple(value["sources"]),
            }
        )

    @property
    def query(self) -> str:
        """What stands behind the question mark of an address that asks it."""
        return urlencode(self.asked)

    def is_for(self, question: Question) -> bool:
        """Return whether a question is the same."""
        return list(self.asked) == question.parameters(cursor=None)


class SavedSearches:
    """The saved searches of a console, as whose request is answered may see and change them."""

    def __init__(
        self,
        searches: Searches,
        path: Path | None = None,
        disk: Disk | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Use a file; None is that of the user who runs this."""
        self._searches: Final = searches
        self._all_sources: Final = tuple(each.name for each in searches.sources.opened)
        self.path: Final = path or saved_searches_path()
        self._disk: Final = disk or Disk()
        self._clock_ns: Final = clock_ns
        self._known: tuple[_Stamp, list[SavedSearch]] | None = None
        """What was read last, in the one thread for files."""

    async def seen(self, *, everything: bool = False) -> list[SavedSearch]:
        """Return one's own searches and those that are shared, the newest first; ``everything``
        has those that others did not share, too, of which one is an administrator.

        :raises RocketLensError: if the file is damaged.
        :raises OSError: if it cannot be read.
        """
        searches = await in_thread(self._read, FILE_THREADS)
        shown = [
            each
            for each in searches
            if self._is_seen(each) or (everything and self._is_admin(each))
        ]
        # The file has them in the order in which they were saved.
        return shown[::-1]

    async def save(self, question: Question, title: str, *, is_shared: bool) -> SavedSearch:
        """Save a question under a title of one's own.

        :raises BadInput: if the title or the question cannot be used, one has a search of that
            title already, or there are too many.
        :raises AuditFailed: if that cannot be written down.
        :raises ConsoleBusy: if another program changes them now.
        :raises RocketLensError: if the file is damaged; errors as `seen`.
        """
        saved = self._made(question, title, is_shared=is_shared)
        _check_room(await in_thread(self._read, FILE_THREADS), saved)
        self._searches.audit.record(
            "save-search", title=saved.title, asked=dict(saved.asked), shared=is_shared
        )

        def added(searches: Sequence[SavedSearch]) -> list[SavedSearch]:
            _check_room(searches, saved)
            return [*searches, saved]

        await in_thread(lambda: self._change(added), FILE_THREADS)
        return saved

    async def delete(self, name: str) -> SavedSearch:
        """Delete a search of one's own, or any that one is an administrator of; return it.

        :raises MessageNotFound: if there is none that one may see.
        :raises ActRefused: if it is another user's.
        """
        searches = await in_thread(self._read, FILE_THREADS)
        saved = next((each for each in searches if each.name == name), None)
        if saved is None or not (self._is_seen(saved) or self._is_admin(saved)):
            raise MessageNotFound(f"there is no saved search {name[:80]!r}")
        if not self.may_delete(saved):
            raise ActRefused(f"{saved.title!r} is of {saved.user}, who may delete it")
        self._searches.audit.record("delete-search", title=saved.title, owner=saved.user)
        await in_thread(
            lambda: self._change(lambda each: [s for s in each if s.name != name]), FILE_THREADS
        )
        return saved

    def is_own(self, saved: SavedSearch) -> bool:
        """Return whether a search is of whose request is answered."""
        return saved.user == _user()

    def may_delete(self, saved: SavedSearch) -> bool:
        """Return whether whose request is answered may delete a search."""
        return self.is_own(saved) or self._is_admin(saved)

    def _made(self, question: Question, title: str, *, is_shared: bool) -> SavedSearch:
        title = " ".join(title.split())
        if not 1 <= len(title) <= limits.MAX_SAVED_TITLE:
            raise BadInput(f"a name is needed, of at most {limits.MAX_SAVED_TITLE} characters")
        if question.is_empty:
            raise BadInput(NOTHING_ASKED)
        request, _ = self._searches.check(question)
        made = SavedSearch(
            name=new_name(),
            title=title,
            user=_user(),
            is_shared=is_shared,
            time_ms=self._clock_ns() // 1_000_000,
            asked=tuple(question.parameters(cursor=None)),
            topics=_topics_in(request),
            sources=question.sources,
        )
        if len(made.query) > limits.MAX_SAVED_CHARACTERS:
            raise BadInput(f"this search has over {limits.MAX_SAVED_CHARACTERS} characters")
        return made

    def _is_seen(self, saved: SavedSearch) -> bool:
        if self.is_own(saved):
            return True
        try:
            chosen = self._searches.sources.chosen(saved.sources)
        except BadInput:
            return False
        if not saved.is_shared:
            return False
        if _may_name_others(saved):
            viewer = current_viewer()
            return all(viewer.sees_all(source.name) for source in chosen)
        return all(
            any(_names_something(source, topic) for source in chosen) for topic in saved.topics
        )

    def _is_admin(self, saved: SavedSearch) -> bool:
        names = saved.sources or self._all_sources
        return all(current_viewer().may_unmask_all(each) for each in names)

    def _read(self) -> list[SavedSearch]:
        try:
            with self.path.open("rb") as file:
                # Of the file that is read: another one may replace it meanwhile.
                status = os.fstat(file.fileno())
                stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
                if self._known is not None and self._known[0] == stamp:
                    return self._known[1]
                content = file.read(limits.MAX_SAVED_BYTES + 1)
        except FileNotFoundError:
            return []
        try:
            searches = _parsed(content)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RocketLensError(
                f"the file of saved searches {self.path} is damaged ({str(error)[:200]}): repair "
                "it, or move it away to begin a new one; nothing is saved until then"
            ) from error
        self._known = stamp, searches
        return searches

    def _change(self, change: Callable[[Sequence[SavedSearch]], list[SavedSearch]]) -> None:
        self._disk.make_directory_durably(self.path.parent)
        try:
            lock = StoreLock(self.path.parent, f"{self.path.name}.lock")
        except StoreLocked:
            raise ConsoleBusy(
                "another program changes the saved searches now: try again in a moment"
            ) from None
        try:
            searches = [asdict(each) for each in change(self._read())]
            content = json.dumps({"version": _VERSION, "searches": searches}, indent=1)
            self._disk.write_durably(self.path, content.encode("ascii"))
        finally:
            lock.release()


def _user() -> str:
    """Return whose search is saved now; empty in a console without users."""
    viewer = current_viewer()
    return "" if viewer is LOCAL else viewer.name


def _parsed(content: bytes) -> list[SavedSearch]:
    if len(content) > limits.MAX_SAVED_BYTES:
        raise ValueError(f"it has over {limits.MAX_SAVED_BYTES} bytes")
    value = json.loads(content)
    if not isinstance(value, dict) or value.get("version") != _VERSION:
        raise ValueError(f"its version is not {_VERSION}")
    return [SavedSearch.of(each) for each in value["searches"]]


def _check_room(searches: Sequence[SavedSearch], saved: SavedSearch) -> None:
    """Check that a search can be added to others.

    :raises BadInput: if it cannot.
    """
    own = [each for each in searches if each.user == saved.user]
    if any(each.title == saved.title for each in own):
        raise BadInput(f"you have a search named {saved.title!r}: give another name, or delete it")
    if len(own) >= limits.MAX_USER_SAVED_SEARCHES:
        raise BadInput(f"you have {len(own)} saved searches: delete one first")
    if len(searches) >= limits.MAX_SAVED_SEARCHES:
        raise BadInput(f"this console has {len(searches)} saved searches: delete one first")


def _topics_in(request: FindRequest) -> tuple[str, ...]:
    """Return the topics that a question names: as such, in a position, and in its filter."""
    position = request.queue_position
    where = None if request.content is None else request.content.where
    filtered = () if where is None else where.texts_of("topic") or ()
    named = () if position is None else (position.topic,)
    return tuple(dict.fromkeys((*request.topics, *named, *sorted(filtered))))


def _may_name_others(saved: SavedSearch) -> bool:
    """Return whether a filter may name topics that a search is not known to name."""
    text = dict(saved.asked).get("where", "")
    try:
        return bool(text) and not parse_where(text).is_told_by_texts(TOPIC)
    except BadInput:
        # Saved by another version, which has other filters.
        return True


def _names_something(source: ConsoleSource, topic: str) -> bool:
    """Return whether a name or a pattern is of something that may be seen in a source."""
    name = without_namespace(namespace_of(source), topic)
    try:
        return bool(narrowed_topics([name], current_viewer().patterns(source.name))[name])
    except BadInput:
        return False
