"""The file of a job that sends stored messages again: the plan, and the outcome of each message.

Each line is the CRC-32 of the rest in eight hexadecimal digits, a space, and a JSON object::

    {"job": ..., "count": ..., "reason": ..., "user": ..., ...}     the header
    {"n": 1, "topic": ..., "offset_msg_id": ..., "target": ...}     each message, from 1 on
    {"n": 1, "sending": TIME, "key": ...}                           synced before its send
    {"n": 1, "sent": MSG_ID, "offset_msg_id": ...}                  synced after it is stored
    {"n": 1, "failed": WHY} or {"n": 1, "unknown": WHY}             instead, if it is surely not
                                                                    stored, or may be
    {"audit": ..., "time": ...}                                     each begin and end of a run,
                                                                    and the stop of a job
    {"audit": ..., "time": ..., "group": G, "came": {"1": STATE}}   states of copies in a group,
                                                                    when they were read

Header and messages are written at once, so every file has all of them. The last line of a number
counts. Only the last line of a file can be torn, by a crash or a full disk: it is cut off before
the next write, and its record is lost. Any other damage is an error: a lost line may have recorded
a sent message.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from rocketlens import limits
from rocketlens.errors import BadInput, StoreLocked
from rocketlens.model.life import time_text
from rocketlens.store.disk import Disk
from rocketlens.store.lock import StoreLock

JOB_SUFFIX: Final = ".job"
SENDING: Final = "sending"
SENT: Final = "sent"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
_STOPPED: Final = "stopped"
_NUMBERS_OF_LINE: Final = 1_000
_STATES: Final = (SENDING, SENT, FAILED, UNKNOWN)
_LINE_BYTES: Final = 8 * limits.MAX_PROPERTIES_BYTES
"""The largest line: a unique key is a property, and JSON may need six bytes for a character."""


class PlannedMessage(Struct, frozen=True, kw_only=True):
    """A stored message to send again; topics include their namespaces."""

    topic: str
    queue_id: int
    queue_offset: int
    offset_msg_id: str
    unique_key: str | None
    target: str
    """The target topic; empty if the message does not name the requested one."""

    @property
    def identity(self) -> str:
        """The unique key, which copies of a message share, or else the offset message id."""
        return self.unique_key or self.offset_msg_id


class JobHeader(Struct, frozen=True, kw_only=True):
    """The task of a job, its user and reason."""

    job: str
    """A random name, which is part of a property of each message sent."""
    count: int
    selection: str
    """The selected messages, in one line."""
    target: str
    """Their target, in one line."""
    cluster: str
    namespace: str
    reason: str
    user: str
    time: str
    """The time of its creation, ISO 8601."""
    origin: str = ""
    """The store or archive that the messages are read from; empty for the cluster."""

    def marker(self, number: int) -> str:
        """Return the value of the property `MARKER` in the copy of a message."""
        return f"{self.job}/{number}"

    login: str = ""
    """The console login that created it; empty for a user of the machine."""


class Outcome(Struct, frozen=True):
    """The outcome of a message: one of `SENDING`, `SENT`, `FAILED`, `UNKNOWN`.

    ``SENDING`` remains only if a run ended before the answer.
    """

    state: str
    value: str = ""
    """The message id, or the reason of FAILED or UNKNOWN."""
    offset_msg_id: str = ""
    key: str = ""
    """The unique key of the copy."""
    time_ms: int = 0
    """The start of its send, by the local clock."""

    @property
    def is_open(self) -> bool:
        """True if the message may be stored."""
        return self.state in {SENDING, UNKNOWN}


class ResendJournal:
    """The file of one job, locked while it is open: only one process runs a job."""

    def __init__(self, path: Path, disk: Disk, lock: StoreLock, contents: "JobContents") -> None:
        """Use `create` or `resume`."""
        self.path: Final = path
        self.header: Final = contents.header
        self.messages: Final[Sequence[PlannedMessage]] = contents.messages
        self.contents: Final = contents
        """The current content of the file; it changes during a run."""
        self._disk: Final = disk
        self._lock: Final = lock

    @classmethod
    def create(
        cls,
        path: Path,
        header: JobHeader,
        messages: Sequence[PlannedMessage],
        disk: Disk | None = None,
    ) -> Self:
        """Write a new file, and return it locked.

        :raises BadInput: if the file exists, its name does not end in ``.job``, or there are more
            messages than a job may have.
        :raises StoreLocked: if another process has locked it.
        :raises OSError: if it cannot be written; no job was created.
        """
        disk = disk or Disk()
        if len(messages) > limits.MAX_RESEND_MESSAGES:
            raise BadInput(
                f"{len(messages)} messages: a job has up to {limits.MAX_RESEND_MESSAGES}; give "
                "--max, and make another job when this one is done"
            )
        lines = [_line(asdict(header))]
        lines += (_line({"n": n, **asdict(each)}) for n, each in enumerate(messages, 1))
        disk.make_directory_durably(path.parent)
        lock = _locked(path)
        try:
            _check_new(path)
            disk.write_durably(path, b"".join(lines))
        except BaseException:
            lock.release()
            raise
        return cls(path, disk, lock, JobContents(header, list(messages), {}, [], {}, 0))

    @classmethod
    def resume(cls, path: Path, disk: Disk | None = None) -> Self:
        """Return the job of an existing file, locked; a torn last line is cut off.

        :raises BadInput: if it is damaged, or not the file of a job.
        :raises StoreLocked: if another process has locked it.
        :raises OSError: if it cannot be read, or the torn line not cut off.
        """
        disk = disk or Disk()
        if not path.is_file():
            raise BadInput(f"{path} is not the file of a job")
        lock = _locked(path)
        try:
            read = read_job(path)
            if read.valid_bytes < path.stat().st_size:
                disk.set_size(path, read.valid_bytes)
                disk.sync_file(path)
        except BaseException:
            lock.release()
            raise
        return cls(path, disk, lock, read)

    def outcome(self, number: int) -> Outcome | None:
        """Return the outcome of a message; None before its first send."""
        return self.contents.outcomes.get(number)

    def counts(self) -> dict[str, int]:
        return self.contents.counts()

    def sending(self, number: int, key: str, time_ms: int) -> None:
        """Record that a message is about to be sent.

        :raises OSError: if the record may not be on the disk: then do not send it.
        """
        self._append({"n": number, SENDING: time_ms, "key": key})

    def sent(self, number: int, msg_id: str, offset_msg_id: str) -> None:
        """Record that a message is stored; errors as `sending`."""
        self._append({"n": number, SENT: msg_id, "offset_msg_id": offset_msg_id})

    def failed(self, number: int, why: str) -> None:
        """Record that a message is surely not stored; errors as `sending`."""
        self._append({"n": number, FAILED: why[: limits.MAX_SHOWN_CHARACTERS]})

    def unknown(self, number: int, why: str) -> None:
        """Record that a message may be stored; errors as `sending`."""
        self._append({"n": number, UNKNOWN: why[: limits.MAX_SHOWN_CHARACTERS]})

    def audit(self, text: str, time: str) -> None:
        """Record the start or end of a run; errors as `sending`."""
        self._append({"audit": text, "time": time})

    def came(self, states: Mapping[str, Mapping[int, str]], time: str) -> None:
        """Record the states of copies, by group and number; errors as `sending`."""
        for group, of_group in states.items():
            numbers = sorted(of_group)
            for start in range(0, len(numbers), _NUMBERS_OF_LINE):
                some = {str(n): of_group[n] for n in numbers[start : start + _NUMBERS_OF_LINE]}
                # Written as an audit, which earlier versions can read.
                line = {"audit": "followed", "time": time, "group": group, "came": some}
                self._append(line)

    def stop(self, why: str, time: str) -> None:
        """Record that the remaining messages will not be sent; errors as `sending`."""
        self.audit(f"{_STOPPED} {why}", time)

    def close(self) -> None:
        """Release the file. A second call has no effect."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        self._disk.append_durably(self.path, _line(line))
        _take(self.path, self.contents, line)


class JobContents(NamedTuple):
    """The content of a file; ``valid_bytes`` excludes a torn last line."""

    header: JobHeader
    messages: list[PlannedMessage]
    outcomes: dict[int, Outcome]
    """Outcomes by message number from 1, of messages whose send has started."""
    audits: list[tuple[str, str]]
    """Start and end of each run, with its time as ISO 8601."""
    came: dict[str, dict[int, str]]
    """The last known state of each copy, by group and number."""
    valid_bytes: int

    @property
    def is_stopped(self) -> bool:
        """True if the remaining messages will not be sent."""
        return bool(self.audits) and self.audits[-1][0].startswith(_STOPPED)

    def counts(self) -> dict[str, int]:
        """Return the number of messages that were sent, failed, are unknown, and are left."""
        states = [each.state for each in list(self.outcomes.values())]
        unknown = states.count(SENDING) + states.count(UNKNOWN)
        return {
            SENT: states.count(SENT),
            FAILED: states.count(FAILED),
            UNKNOWN: unknown,
            "left": len(self.messages) - len(states),
        }


class EarlierSend(NamedTuple):
    """The last send of a message by a job, whether it was stored or not."""

    header: JobHeader
    number: int
    time_ms: int

    @property
    def marker(self) -> str:
        return self.header.marker(self.number)


class EarlierJobs(NamedTuple):
    """The results of a directory's jobs for the messages of one topic."""

    sent: dict[str, EarlierSend]
    """By `PlannedMessage.identity`."""
    unfinished: list[Path]
    """Files of jobs with messages that are left or of unknown outcome."""


def earlier_jobs(directory: Path, topic: str, cluster: str) -> EarlierJobs:
    """Read the messages of a topic, with its namespace, that a directory's jobs have sent.

    A job counts if it shares a name server with the cluster, whatever its selection; running jobs
    count, too.

    :raises BadInput: if a file cannot be read: its sent messages are unknown.
    """
    jobs = EarlierJobs({}, [])
    for path in sorted(directory.glob(f"*{JOB_SUFFIX}")):
        with path.open("rb") as file:
            head = next(_lines(path, file), (0, {}))[1]
        if set(cluster.split(";")).isdisjoint(str(head.get("cluster")).split(";")):
            continue
        read = read_job(path)
        own = [n for n, each in enumerate(read.messages, 1) if each.topic == topic]
        outcomes = {n: read.outcomes[n] for n in own if n in read.outcomes}
        for number, outcome in outcomes.items():
            sent = EarlierSend(read.header, number, outcome.time_ms)
            identity = read.messages[number - 1].identity
            before = jobs.sent.get(identity, sent)
            if outcome.state != FAILED and before.time_ms <= sent.time_ms:
                jobs.sent[identity] = sent
        is_open = any(each.is_open for each in outcomes.values())
        if not read.is_stopped and (is_open or len(outcomes) < len(own)):
            jobs.unfinished.append(path)
    return jobs


def in_words(sends: Sequence[EarlierSend]) -> str:
    """Return the jobs that sent messages: the last three, with user, time and reason."""
    last = {each.header.job: each for each in sorted(sends, key=lambda each: each.time_ms)}
    names = [
        f"{each.header.job} of {each.header.user}, {time_text(each.time_ms)}, {each.header.reason}"
        for each in reversed(last.values())
    ]
    return "; ".join(names[:3]) + (f"; {len(names) - 3} more jobs" if len(names) > 3 else "")


def read_job(path: Path) -> JobContents:
    """Read a whole file, which need not be locked.

    :raises BadInput: if it is damaged, or not the file of a job.
    :raises OSError: if it cannot be read.
    """
    messages: list[PlannedMessage] = []
    with path.open("rb") as file:
        lines = _lines(path, file)
        try:
            valid_bytes, line = next(lines)
            header = msgspec.convert(line, JobHeader)
            # With the range first, zip reads no line too many.
            for number, (end, line) in zip(range(1, header.count + 1), lines, strict=False):
                valid_bytes = end
                _check(line["n"] == number and number <= limits.MAX_RESEND_MESSAGES)
                messages.append(msgspec.convert(line, PlannedMessage))
            _check(len(messages) == header.count)
        except BadInput:
            raise
        except (KeyError, ValueError, StopIteration):
            raise BadInput(f"{path} is not the whole file of a job: nothing is sent") from None
        contents = JobContents(header, messages, {}, [], {}, valid_bytes)
        for end, fields_of_line in lines:
            valid_bytes = end
            _take(path, contents, fields_of_line)
    return contents._replace(valid_bytes=valid_bytes)


def _take(path: Path, contents: JobContents, line: Mapping[str, Any]) -> None:
    """Add a line's record to ``contents``.

    :raises BadInput: if it is not valid.
    """
    state = next((each for each in _STATES if each in line), None)
    if state is None:
        if isinstance(line.get("came"), dict):
            states = contents.came.setdefault(str(line.get("group")), {})
            states.update({int(n): str(word) for n, word in line["came"].items() if n.isdigit()})
            return
        if "audit" in line:
            contents.audits.append((str(line["audit"]), str(line.get("time"))))
            return
        raise BadInput(f"{path} has a line of an unknown kind: a newer version wrote it")
    outcomes = contents.outcomes
    number, value = line.get("n"), line[state]
    if not isinstance(number, int) or not 0 < number <= len(contents.messages):
        raise BadInput(f"{path} has a line of a message that it does not have")
    if state == SENDING:
        if not isinstance(value, int):
            raise BadInput(f"{path} has a time that is not a number")
        outcomes[number] = Outcome(state, key=str(line.get("key")), time_ms=value)
        return
    before = outcomes.get(number, Outcome(SENDING))
    offset_msg_id = str(line.get("offset_msg_id", ""))
    outcomes[number] = Outcome(state, str(value), offset_msg_id, before.key, before.time_ms)


def _check(holds: object) -> None:
    """Raise ValueError if a condition of all job files does not hold."""
    if not holds:
        raise ValueError


def _check_new(path: Path) -> None:
    if path.suffix != JOB_SUFFIX:
        raise BadInput(f"{path}: the name of a job's file ends in {JOB_SUFFIX}")
    if path.exists():
        raise BadInput(f"{path} exists already: it is the file of another job")


def _locked(path: Path) -> StoreLock:
    try:
        return StoreLock(path.parent, f"{path.name}.lock")
    except StoreLocked:
        raise StoreLocked(f"{path}: another process runs this job now") from None


def _line(fields_of_line: Mapping[str, Any]) -> bytes:
    text = json.dumps(fields_of_line, separators=(",", ":")).encode("ascii")
    if len(text) > _LINE_BYTES:
        raise BadInput(f"a line of {len(text)} bytes does not fit a job's file: ask for fewer ids")
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read whole lines: the end of each, and its fields; a torn last one is left out.

    :raises BadInput: if another line is damaged.
    """
    end = number = 0
    while line := file.readline(_LINE_BYTES + 16):
        number += 1
        if not line.endswith(b"\n") and len(line) < _LINE_BYTES + 16:
            return
        try:
            _check(line[:9] == b"%08x " % zlib.crc32(line[9:-1]))
            fields_of_line = json.loads(line[9:-1])
            _check(isinstance(fields_of_line, dict))
        except (ValueError, RecursionError):
            raise BadInput(
                f"{path}, line {number}, is damaged: the sent messages are unknown, so none is sent"
            ) from None
        end += len(line)
        yield end, fields_of_line
