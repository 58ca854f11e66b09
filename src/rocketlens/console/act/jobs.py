"""Jobs and acts of the console, one file each, and the jobs that run in this process.

A job sends stored messages again. Its file (`rocketlens.client.resend.resend_journal`) is the same
as that of the command line. When the console ends, its jobs end after the message that is being
sent. The rest can be resumed here or by the command line.

An act sends one new message, or has a client consume one. Its file is JSON, written before and
after the act. If the file has no result, the console ended meanwhile: the act can have been done.

The server puts the name of a job or act into the form that starts it. A form that is sent twice
acts once, and leads to the same result.
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
from rocketlens.console.act.permission import current_login, current_user
from rocketlens.console.act.plans import FILE_THREADS, ResendPlan, address_of
from rocketlens.console.login.viewer import current_viewer
from rocketlens.console.message.look_up import LookUps
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
"""Jobs that run at once. Others can be resumed later."""
MAX_USER_JOBS: Final = 2
"""Running jobs of one user."""
DEFAULT_RATE: Final = 20
"""Messages a second, as in the command line."""
_NAME: Final = re.compile(r"\d{8}T\d{6}-[0-9a-f]{12}", re.ASCII)
_ENDING_S: Final = 5.0
"""Seconds for the message that a job is sending when the console ends."""
_FOLLOWED_S: Final = 600.0
"""Seconds for which the outcome of sent messages is looked up."""
_ENDED_WITH: Final = 1_000
"""Ended jobs and acts whose errors are kept in memory."""
_Version = tuple[int, int, int]
"""Inode, size and time of a file, to detect changes."""
ACT_SUFFIX: Final = ".act"
BEGUN: Final = "begun"
DONE: Final = "done"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
KEPT_CHARACTERS: Final = 10_000
"""Characters of an answer of a client or broker that are kept."""


def new_name() -> str:
    """Return the name of a new job or act. Names sort by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{token_hex(6)}"


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _file(directory: Path, name: str, suffix: str) -> Path:
    """Return the path of a job's or act's file.

    :raises MessageNotFound: if the name is not valid.
    """
    if not is_name(name):
        raise MessageNotFound(Sentence("no_job", name=repr(name[:80])))
    return directory / f"{name}{suffix}"


class _Running(Struct):
    """A job that runs in this console."""

    journal: ResendJournal
    rate: int
    ending: str = ""
    """Why the job ends after the current message: ``paused by ...`` or ``stopped by ...``."""
    task: "asyncio.Task[None] | None" = None
    user: str = field(default_factory=lambda: current_viewer().name)
    """The user who started or resumed it."""


class JobState(Struct, frozen=True, kw_only=True):
    """A job: the content of its file, and whether it runs."""

    name: str
    header: JobHeader
    counts: Mapping[str, int]
    """Messages by state."""
    word: str
    """``running``, ``ending``, ``done``, ``stopped``, or ``open``: the rest can be resumed."""
    error: str = ""
    """Why it ended early in this console."""
    is_followed: bool = False
    """True if the outcome of its messages is being looked up."""
    contents: JobContents | None
    """None in a list of jobs."""

    @classmethod
    def of(cls, name: str, contents: JobContents, word: str = "", error: str = "") -> Self:
        """:param word: The state of a running job."""
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
        """:param directory: The directory of the files; None for that of the user."""
        self._look_up: Final = look_up
        self._sources: Final[Sources] = look_up.sources
        self.directory: Final = directory or jobs_directory()
        self.acts: Final = Acts(self.directory)
        self._sleep: Final = sleep
        self._running: Final[dict[str, _Running]] = {}
        self._follows: Final[dict[str, asyncio.Task[None]]] = {}
        """Tasks that look up the outcome of messages, by ended job."""
        self._errors: Final[dict[str, str]] = {}
        self._listed: Final[dict[Path, tuple[_Version, JobState]]] = {}
        """The jobs that were listed last, with the version of the file that was read."""

    def path(self, name: str) -> Path:
        """Return the path of a job's file.

        :raises MessageNotFound: if the name is not valid.
        """
        return _file(self.directory, name, JOB_SUFFIX)

    async def start(self, name: str, plan: ResendPlan, *, reason: str, rate: int) -> None:
        """Start a job. No effect if it exists: its form was sent twice.

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
            user=current_user(),
            time=now_text(),
            origin="" if plan.origin.kind == "cluster" else plan.origin.title,
            login=current_login(),
        )
        # Synchronously, so that a form that is sent twice finds the file.
        journal = ResendJournal.create(path, header, plan.messages)
        self._begin(name, _Running(journal, rate), plan.cluster, plan.origin)

    async def resume(self, name: str, cluster: ClusterOfConsole, *, rate: int) -> None:
        """Send the rest of a job. No effect if it runs.

        :raises BadInput: if its file is damaged, or its store is not a source of this console.
        :raises StoreLocked: if another process runs it.
        :raises ConsoleBusy: if too many jobs run.
        :raises OSError: if its file cannot be read or repaired.
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
        """End a job after the current message. No effect if it does not run here.

        ``why`` starts with ``paused`` or ``stopped``.
        """
        running = self._running.get(name)
        if running is not None:
            running.ending = why

    async def stop(self, name: str, user: str) -> None:
        """End a job for good: the rest is not sent.

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
        """Wait until a job has ended, for at most ``patience_s`` seconds; None is without a
        limit.
        """
        running = self._running.get(name)
        if running is not None and running.task is not None:
            await asyncio.wait([running.task], timeout=patience_s)

    def cluster_of(self, header: JobHeader) -> ConsoleSource:
        """Return the source that is the cluster of a job.

        :raises BadInput: if the console does not have it.
        """
        for each in self._sources:
            address = (each.title, each.namespace)
            if each.cluster is not None and address == (header.cluster, header.namespace):
                return each
        raise BadInput(Sentence("no_job_cluster", name=header.cluster))

    def origin_of(self, header: JobHeader) -> ConsoleSource:
        """Return the source that a job reads its messages from.

        :raises BadInput: if the console does not have it.
        """
        if not header.origin:
            return self.cluster_of(header)
        for each in self._sources:
            if each.kind != "cluster" and each.title == header.origin:
                return each
        raise BadInput(Sentence("no_job_origin", name=header.origin))

    async def state(self, name: str) -> JobState:
        """Return a job.

        :raises MessageNotFound: if it does not exist.
        :raises BadInput: if its file is damaged.
        :raises OSError: if its file cannot be read.
        """
        path = self.path(name)
        running = self._running.get(name)
        if running is not None:
            word = "ending" if running.ending else "running"
            return JobState.of(name, running.journal.contents, word)
        try:
            contents = await in_thread(lambda: read_job(path), FILE_THREADS)
        except FileNotFoundError:
            raise MessageNotFound(Sentence("no_job", name=name)) from None
        state = JobState.of(name, contents, error=self._errors.get(name, ""))
        return replace(state, is_followed=name in self._follows)

    async def listed(self, name: str) -> JobState:
        """Return a job without its messages; errors as `state`. Unchanged files are not read
        again.
        """
        path = self.path(name)
        if name in self._running:
            return replace(await self.state(name), contents=None)
        try:
            return await in_thread(lambda: self._read_listed(path), FILE_THREADS)
        except FileNotFoundError:
            raise MessageNotFound(Sentence("no_job", name=name)) from None

    def _read_listed(self, path: Path) -> JobState:
        """Return a job from its file or from memory. Call it in FILE_THREADS."""
        # Before reading: later writes make another version.
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
        """Return the names of all jobs and acts, newest first."""
        files = (self.directory.glob(f"*{each}") for each in (JOB_SUFFIX, ACT_SUFFIX))
        stems = (each.stem for several in files for each in several)
        return sorted(filter(is_name, stems), reverse=True)

    async def close(self) -> None:
        """Pause all jobs that run here, and wait for acts."""
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
        # asyncio logs a bug; the file has what was sent.
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
        """Record what becomes of the sent messages, for at most _FOLLOWED_S."""
        path = self.path(name)

        def record(came: Came) -> None:
            # Locked only while writing: others can resume the job.
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
            # The page keeps the last known outcome; the job itself has succeeded.
            logger.info("stopped following job %s", name, exc_info=True)
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
        async def read(message: PlannedMessage) -> MessageExt:
            return await self._look_up.original(address_of(message, origin))

        async with cluster.producer(**producer_options()) as producer:
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
    """Return the current time as files have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class ActValue(ConsoleValue):
    """A new message that is sent, or a stored one that a client consumes, and the result."""

    name: str
    kind: Literal["send", "consume"]
    state: Literal["begun", "done", "failed", "unknown"] = Field(
        default="begun", description="failed: not done; unknown: possibly done"
    )
    why: str = Field(default="", description="why it failed or is unknown")
    cluster: str
    reason: str
    user: str
    login: str = Field(default="", description="the user's login; empty in a console without users")
    time: str
    facts: dict[str, str] = Field(description="topic, keys, group, client ...")
    results: dict[str, str] = Field(default={}, description="the answer of the broker or client")


class Acts:
    """Does acts and records them; belongs to one event loop."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._disk: Final = Disk()
        self._running: Final[dict[str, asyncio.Task[None]]] = {}
        self._unwritten: Final[dict[str, ActValue]] = {}
        """Ended acts whose result could not be written."""

    def path(self, name: str) -> Path:
        return _file(self._directory, name, ACT_SUFFIX)

    async def do(self, act: ActValue, work: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        """Do an act once and record its result. A second call waits for the same result.

        The act continues if its request is cancelled.

        :raises OSError: if its file cannot be written. Nothing was done then.
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
            # It was done: reported as failed, it would be repeated.
            why = f"{done.why}; " if done.why else ""
            text = f"{why}the outcome is kept in memory only: it was not written, {error}"
            while len(self._unwritten) >= _ENDED_WITH:
                del self._unwritten[next(iter(self._unwritten))]
            self._unwritten[act.name] = done.model_copy(update={"why": text})
        finally:
            del self._running[act.name]

    def _write(self, act: ActValue) -> None:
        content = json.dumps(act.model_dump())
        self._disk.write_durably(self.path(act.name), content.encode("ascii"))

    def has(self, name: str) -> bool:
        return is_name(name) and self.path(name).exists()

    async def act(self, name: str) -> ActValue:
        """Return an act. It is ``unknown`` if the console ended during the act.

        :raises MessageNotFound: if it does not exist.
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
            raise RocketLensError(f"{path} is damaged: the result of the act is unknown") from error
        if act.state == BEGUN and name not in self._running:
            why = "the console ended before the answer came"
            return act.model_copy(update={"state": UNKNOWN, "why": why})
        return act

    async def close(self) -> None:
        """Wait for running acts. Each has a timeout."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)


def may_be_done(error: Exception) -> bool:
    """Return whether an act can have been done although it failed."""
    if isinstance(error, SendFailed):
        causes = [each for _, each in error.attempts]
        return not all(isinstance(each, ConnectFailed | BrokerError) for each in causes)
    if isinstance(error, BrokerError):
        return error.code == ResponseCode.CONSUME_MSG_TIMEOUT
    return isinstance(error, CallTimeout | ConnectionLost | BadAnswer)
