"""Jobs and acts of a console: what was done, with one file each, and those that run here.

A job sends stored messages again. It is its file (:mod:`rocketlens.client.resend.resend_journal`),
whichever program made it. When the console ends, its jobs end after the message that is being sent;
what is not sent yet can be resumed here or by the command line.

An act sends one new message, or has a client consume one. Its file is JSON, written before the act
and after it. One that was begun and has no end may have been done: the console ended meanwhile.

The name of either is that of the form that asked for it, which the server made. So a form that is
sent twice does it once, and its page shows the same result each time.
"""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Literal, Self

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import Field

from rocketlens import limits
from rocketlens.client.resend.follow import Came, CopyFollower, follow
from rocketlens.client.resend.resend_job import ResendJob, producer_options
from rocketlens.client.resend.resend_journal import (
    JOB_SUFFIX,
    SENT,
    JobContents,
    JobHeader,
    PlannedMessage,
    ResendJournal,
    read_job,
)
from rocketlens.client.send.producer import Producer
from rocketlens.console.act.plans import FILE_THREADS, ResendPlan
from rocketlens.console.login.viewer import current_viewer
from rocketlens.console.message.look_up import LookUps, MessageAddress
from rocketlens.console.room import ConsoleBusy
from rocketlens.console.sources.sources import ClusterOfConsole, Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.values import ConsoleValue
from rocketlens.errors import (
    BadAnswer,
    BadInput,
    BrokerError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    MessageNotFound,
    RocketLensError,
    SendFailed,
)
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.net.pace import in_thread
from rocketlens.store.disk import Disk
from rocketlens.terminal.cluster_access import jobs_directory
from rocketlens.wire.codes import ResponseCode

logger: Final = logging.getLogger("rocketlens.console")

MAX_CONSOLE_JOBS: Final = 4
"""Jobs of one console that run at once; more wait to be resumed."""
MAX_USER_JOBS: Final = 2
"""Of these for one user."""
DEFAULT_RATE: Final = 20
"""Messages a second, as the command line has it."""
_NAME: Final = re.compile(r"\d{8}T\d{6}-[0-9a-f]{12}", re.ASCII)
_ENDING_S: Final = 5.0
"""Seconds that a job has for the message that it sends when the console ends."""
_FOLLOWED_S: Final = 600.0
"""Seconds for which it is looked up at most what became of the messages of a job."""
_ENDED_WITH: Final = 1_000
"""Errors that are remembered of jobs that ended."""
_Version = tuple[int, int, int]
"""Inode, size and time of a file: another one for each line that is appended."""
ACT_SUFFIX: Final = ".act"
BEGUN: Final = "begun"
DONE: Final = "done"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
KEPT_CHARACTERS: Final = 10_000
"""Characters of what a client or broker answered that are kept."""


def new_name() -> str:
    """Return the name of a new job or act: names are in the order of their times."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{token_hex(6)}"


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a job or act, and so of its file."""
    return _NAME.fullmatch(text) is not None


def _file(directory: Path, name: str, suffix: str) -> Path:
    """Return the path of the file of a name.

    :raises MessageNotFound: if no file can have it.
    """
    if not is_name(name):
        raise MessageNotFound(Sentence("no_job", name=repr(name[:80])))
    return directory / f"{name}{suffix}"


def _names_in(directory: Path, suffix: str) -> list[str]:
    """Return the names of the files of a directory, the newest first."""
    stems = (each.stem for each in directory.glob(f"*{suffix}"))
    return sorted(filter(is_name, stems), reverse=True)


class _Running(Struct):
    """A job that runs in this console."""

    journal: ResendJournal
    rate: int
    ending: str = ""
    """Why it ends after the message that is being sent: ``paused by ...``, ``stopped by ...``."""
    task: "asyncio.Task[None] | None" = None
    user: str = field(default_factory=lambda: current_viewer().name)
    """The one who started or resumed it."""

    @property
    def word(self) -> str:
        """``running`` or ``ending``."""
        return "ending" if self.ending else "running"


class JobState(Struct, frozen=True, kw_only=True):
    """A job: what its file has, and whether it runs."""

    name: str
    header: JobHeader
    counts: Mapping[str, int]
    """Of its messages, by state."""
    word: str
    """``running``, ``ending``, ``done``, ``stopped`` or ``open``: what is left can be resumed."""
    error: str = ""
    """Why it ended early in this console."""
    is_followed: bool = False
    """Whether it is being looked up what became of its messages."""
    contents: JobContents | None
    """None in a list of jobs."""

    @classmethod
    def of(cls, name: str, contents: JobContents, word: str = "", error: str = "") -> Self:
        """Return what a file has; ``word`` if the job runs."""
        counts = contents.counts()
        if not word and counts[SENT] == len(contents.messages):
            word = "done"
        return cls(
            name=name,
            header=contents.header,
            counts=counts,
            word=word or ("stopped" if contents.is_stopped else "open"),
            error=error,
            contents=contents,
        )


class Jobs:
    """Starts, pauses, resumes and stops jobs; belongs to one event loop."""

    def __init__(
        self,
        look_up: LookUps,
        directory: Path | None = None,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Use the files of a directory; None is the user's."""
        self._look_up: Final = look_up
        self._sources: Final[Sources] = look_up.sources
        self.directory: Final = directory or jobs_directory()
        self.acts: Final = Acts(self.directory)
        """Those of the same directory."""
        self._sleep: Final = sleep
        self._running: Final[dict[str, _Running]] = {}
        self._follows: Final[dict[str, asyncio.Task[None]]] = {}
        """Of jobs that ended: what became of their messages is looked up."""
        self._errors: Final[dict[str, str]] = {}
        self._listed: Final[dict[Path, tuple[_Version, JobState]]] = {}
        """Of files that did not change since they were read; of those that were listed last."""

    def path(self, name: str) -> Path:
        """Return the path of a job's file.

        :raises MessageNotFound: if no job can have this name.
        """
        return _file(self.directory, name, JOB_SUFFIX)

    async def start(
        self, name: str, plan: ResendPlan, *, reason: str, user: str, rate: int, login: str = ""
    ) -> None:
        """Make a job and run it; nothing if it was made before: its form was sent twice.

        :raises ConsoleBusy: if too many jobs run.
        :raises BadInput: if it has too many messages.
        :raises OSError: if its file cannot be written.
        """
        path = self.path(name)
        if name in self._running or path.exists():
            return
        self._check_room()
        header = JobHeader(
            job=name,
            count=len(plan.messages),
            selection=plan.selection,
            target=str(plan.target),
            cluster=plan.cluster.admin.source.name,
            namespace=plan.cluster.admin.namespace,
            reason=reason,
            user=user,
            time=now_text(),
            origin=plan.from_store,
            login=login,
        )
        # Here, and not in a thread: a form that is sent twice at once finds the file.
        journal = ResendJournal.create(path, header, plan.messages)
        self._begin(name, _Running(journal, rate), plan.cluster, plan.origin)

    async def resume(self, name: str, cluster: ClusterOfConsole, *, rate: int) -> None:
        """Run what is left of a job; nothing if it runs.

        :raises BadInput: if its file is damaged, or no source is the store that it reads.
        :raises StoreLocked: if another process runs it.
        :raises ConsoleBusy: if too many jobs run.
        :raises OSError: if its file cannot be read or mended.
        """
        path = self.path(name)
        if name in self._running:
            return
        self._check_room()
        if not path.is_file():
            raise MessageNotFound(Sentence("no_job", name=name))
        await self._end_follow(name)
        journal = ResendJournal.resume(path)
        try:
            origin = self.origin_of(journal.header)
        except BaseException:
            journal.close()
            raise
        self._begin(name, _Running(journal, rate), cluster, origin)

    def end(self, name: str, why: str) -> None:
        """Let a job end after the message that is being sent; nothing if it does not run here.

        ``why`` begins with ``paused`` or ``stopped``.
        """
        running = self._running.get(name)
        if running is not None:
            running.ending = why

    async def stop(self, name: str, user: str) -> None:
        """Record that what is left of a job shall not be sent.

        :raises StoreLocked: if another process runs it.
        :raises OSError: if its file cannot be written.
        """
        if name in self._running:
            self.end(name, f"stopped by {user}")
            return
        await self._end_follow(name)
        with ResendJournal.resume(self.path(name)) as journal:
            journal.stop(f"by {user}", now_text())

    async def settled(self, name: str, patience_s: float | None) -> None:
        """Wait until a job does not run, or for so long; None is forever."""
        running = self._running.get(name)
        if running is not None and running.task is not None:
            await asyncio.wait([running.task], timeout=patience_s)

    def cluster_of(self, header: JobHeader) -> ConsoleSource:
        """Return the source that is the cluster of a job.

        :raises BadInput: if none is.
        """
        for each in self._sources:
            address = (each.title, each.namespace)
            if each.cluster is not None and address == (header.cluster, header.namespace):
                return each
        raise BadInput(Sentence("no_job_cluster", name=header.cluster))

    def origin_of(self, header: JobHeader) -> ConsoleSource:
        """Return the source that a job reads its messages from.

        :raises BadInput: if none is.
        """
        if not header.origin:
            return self.cluster_of(header)
        for each in self._sources:
            if each.kind != "cluster" and each.title == header.origin:
                return each
        raise BadInput(Sentence("no_job_origin", name=header.origin))

    async def state(self, name: str) -> JobState:
        """Return a job.

        :raises MessageNotFound: if there is none of that name.
        :raises BadInput: if its file is damaged.
        :raises OSError: if it cannot be read.
        """
        path = self.path(name)
        running = self._running.get(name)
        if running is not None:
            return JobState.of(name, running.journal.contents, running.word)
        try:
            contents = await in_thread(lambda: read_job(path), FILE_THREADS)
        except FileNotFoundError:
            raise MessageNotFound(Sentence("no_job", name=name)) from None
        state = JobState.of(name, contents, error=self._errors.get(name, ""))
        return replace(state, is_followed=name in self._follows)

    async def listed(self, name: str) -> JobState:
        """Return a job without its messages; its file is read only if it changed since the last
        time. Errors as `state`.
        """
        path = self.path(name)
        if name in self._running:
            return replace(await self.state(name), contents=None)
        try:
            return await in_thread(lambda: self._read_listed(path), FILE_THREADS)
        except FileNotFoundError:
            raise MessageNotFound(Sentence("no_job", name=name)) from None

    def _read_listed(self, path: Path) -> JobState:
        """Return what a file has, read again if it changed; call it in the one thread for files."""
        # Before it is read: what is written meanwhile is another version.
        status = path.stat()
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        entry = self._listed.pop(path, None)
        if entry is None or entry[0] != version:
            entry = version, replace(JobState.of(path.stem, read_job(path)), contents=None)
        while len(self._listed) >= limits.MAX_CONSOLE_JOB_FILES:
            del self._listed[next(iter(self._listed))]
        self._listed[path] = entry
        return entry[1]

    def names(self) -> list[str]:
        """Return the names of all jobs and acts, the newest first."""
        jobs = _names_in(self.directory, JOB_SUFFIX)
        return sorted([*jobs, *self.acts.names()], reverse=True)

    async def close(self) -> None:
        """End all jobs that run here, which can be resumed; wait for the end of acts."""
        running = list(self._running.values())
        for job in running:
            job.ending = job.ending or "paused: the console ends"
        tasks = [job.task for job in running if job.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_ENDING_S)
            for each in late:
                each.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for name in list(self._follows):
            await self._end_follow(name)
        await self.acts.close()

    def _check_room(self) -> None:
        user = current_viewer().name
        own = sum(each.user == user for each in self._running.values())
        if own >= MAX_USER_JOBS:
            raise ConsoleBusy(Sentence("user_jobs_busy", count=own))
        if len(self._running) >= MAX_CONSOLE_JOBS:
            raise ConsoleBusy(Sentence("jobs_busy", count=len(self._running)))

    def _begin(
        self, name: str, running: _Running, cluster: ClusterOfConsole, origin: ConsoleSource
    ) -> None:
        self._running[name] = running
        self._errors.pop(name, None)
        # A mistake of the program is logged by asyncio, and the file has what was sent.
        running.task = asyncio.create_task(self._run(name, running, cluster, origin))

    async def _run(
        self, name: str, running: _Running, cluster: ClusterOfConsole, origin: ConsoleSource
    ) -> None:
        journal = running.journal
        try:
            await self._send(running, cluster, origin)
            if running.ending.startswith("stopped"):
                journal.stop(running.ending.removeprefix("stopped "), now_text())
            elif running.ending:
                journal.audit(running.ending, now_text())
        except (RocketLensError, OSError) as error:
            while len(self._errors) >= _ENDED_WITH:
                del self._errors[next(iter(self._errors))]
            self._errors[name] = str(error)
        finally:
            journal.close()
            del self._running[name]
        if journal.counts()[SENT] and not running.ending:
            self._follows[name] = asyncio.create_task(self._follow(name, cluster))

    async def _follow(self, name: str, cluster: ClusterOfConsole) -> None:
        """Keep what becomes of what was sent, until that is known, for some minutes at most."""
        path = self.path(name)

        def record(came: Came) -> None:
            # Locked for this moment only: others may resume the job.
            with ResendJournal.resume(path) as journal:
                journal.came(came, now_text())
            for group, states in came.items():
                contents.came.setdefault(group, {}).update(states)

        try:
            contents = await in_thread(lambda: read_job(path), FILE_THREADS)
            follower = CopyFollower(cluster.admin, contents)
            looks = follow(follower, record, _FOLLOWED_S, sleep=self._sleep)
            async with contextlib.aclosing(looks):
                async for _ in looks:
                    pass
        except (RocketLensError, OSError):
            # The page says what was known last; the job itself has ended well.
            logger.info("job %s is not followed any more", name, exc_info=True)
        finally:
            self._follows.pop(name, None)

    async def _end_follow(self, name: str) -> None:
        task = self._follows.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send(
        self, running: _Running, cluster: ClusterOfConsole, origin: ConsoleSource
    ) -> None:
        access = cluster.access
        if access is None:
            raise AssertionError(cluster.name)

        async def read(message: PlannedMessage) -> MessageExt:
            address = MessageAddress(
                source=origin.name,
                topic=message.topic,
                queue_id=message.queue_id,
                queue_offset=message.queue_offset,
            )
            return await self._look_up.original(address)

        # Topics of a plan have their namespaces.
        options = {**access.client_options, "namespace": "", **producer_options()}
        async with Producer(access.name_servers, **options) as producer:
            job = ResendJob(
                running.journal,
                cluster.admin,
                producer,
                rate=running.rate,
                read=read if running.journal.header.origin else None,
                sleep=self._sleep,
            )
            async with contextlib.aclosing(job.run()) as progress:
                async for _ in progress:
                    if running.ending:
                        break


def now_text() -> str:
    """Return this moment, as files have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class ActValue(ConsoleValue):
    """A new message that is sent, or a stored one that a client consumes, and the result."""

    name: str
    kind: Literal["send", "consume"]
    state: Literal["begun", "done", "failed", "unknown"] = Field(
        default="begun", description="failed: surely not done; unknown: it may be done"
    )
    why: str = Field(default="", description="why it failed, or is not known")
    cluster: str
    reason: str
    user: str
    login: str = Field(default="", description="the user's, if that is one of the console")
    time: str
    facts: dict[str, str] = Field(description="what was shown: topic, keys, group, client ...")
    results: dict[str, str] = Field(default={}, description="what came of it")


class Acts:
    """Does acts, and keeps them; belongs to one event loop."""

    def __init__(self, directory: Path) -> None:
        """Use the files of a directory."""
        self._directory: Final = directory
        self._disk: Final = Disk()
        self._running: Final[dict[str, asyncio.Task[None]]] = {}
        self._unwritten: Final[dict[str, ActValue]] = {}
        """Acts that ended, and whose outcome could not be written."""

    def path(self, name: str) -> Path:
        """Return the path of an act's file.

        :raises MessageNotFound: if no act can have this name.
        """
        return _file(self._directory, name, ACT_SUFFIX)

    async def do(self, act: ActValue, work: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        """Do something once, and keep its outcome; wait for that, also the second time.

        It goes on if the request that asks for it ends.

        :raises OSError: if its file cannot be written; then nothing is done.
        """
        path = self.path(act.name)
        if act.name not in self._running:
            if path.exists():
                return
            self._disk.make_directory_durably(self._directory)
            self._write(act)
            self._running[act.name] = asyncio.create_task(self._work(act, work))
        await asyncio.shield(self._running[act.name])

    async def _work(self, act: ActValue, work: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        values: dict[str, Any]
        try:
            results = await work()
            values = {"state": results.get("state", DONE), "results": dict(results)}
        except (RocketLensError, OSError) as error:
            state = UNKNOWN if may_be_done(error) else FAILED
            values = {"state": state, "why": str(error)[:KEPT_CHARACTERS]}
        done = act.model_copy(update=values)
        try:
            self._write(done)
        except OSError as error:
            # It was done all the same: who is told that it failed would do it again.
            why = f"{done.why}; " if done.why else ""
            text = f"{why}the outcome is kept until the console ends: it was not written, {error}"
            while len(self._unwritten) >= _ENDED_WITH:
                del self._unwritten[next(iter(self._unwritten))]
            self._unwritten[act.name] = done.model_copy(update={"why": text})
        finally:
            del self._running[act.name]

    def _write(self, act: ActValue) -> None:
        content = json.dumps(act.model_dump())
        self._disk.write_durably(self.path(act.name), content.encode("ascii"))

    def has(self, name: str) -> bool:
        """Return whether there is an act of a name."""
        return is_name(name) and self.path(name).exists()

    async def act(self, name: str) -> ActValue:
        """Return an act; one that was begun when the console ended is ``unknown``.

        :raises MessageNotFound: if there is none.
        :raises OSError: if it cannot be read.
        """
        path = self.path(name)
        if name in self._unwritten:
            return self._unwritten[name]
        try:
            act = ActValue.model_validate_json(await in_thread(path.read_bytes, FILE_THREADS))
        except FileNotFoundError:
            raise MessageNotFound(Sentence("no_job", name=name)) from None
        except ValueError as error:
            raise RocketLensError(f"{path} is damaged: what was done is not known") from error
        if act.state == BEGUN and name not in self._running:
            why = "the console ended before the answer came"
            return act.model_copy(update={"state": UNKNOWN, "why": why})
        return act

    def names(self) -> list[str]:
        """Return the names of all acts, the newest first."""
        return _names_in(self._directory, ACT_SUFFIX)

    async def close(self) -> None:
        """Wait for the acts that are under way, each of which ends by its own timeout."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)


def may_be_done(error: Exception) -> bool:
    """Return whether something may be done although it ended with an error."""
    if isinstance(error, SendFailed):
        causes = [each for _, each in error.attempts]
        return not all(isinstance(each, ConnectFailed | BrokerError) for each in causes)
    if isinstance(error, BrokerError):
        return error.code == ResponseCode.CONSUME_MSG_TIMEOUT
    return isinstance(error, CallTimeout | ConnectionLost | BadAnswer)
