"""Single acts: a message that is sent, a client that consumes one; each is a small file.

The file is written before the act and after it. One that was begun and has no end may have been
done: the console ended meanwhile. Its name is that of its form, so a form that is sent twice acts
once, and its page shows the same result each time.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from rocketlens.client.admin.consume_directly import ConsumedDirectly
from rocketlens.client.send.send_result import SendResult
from rocketlens.console.act.forms import is_name
from rocketlens.console.act.resend_plan import FILE_THREADS
from rocketlens.errors import (
    BadAnswer,
    BrokerError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    MessageNotFound,
    RocketLensError,
    SendFailed,
)
from rocketlens.net.pace import in_thread
from rocketlens.store.disk import Disk
from rocketlens.terminal.cluster_access import jobs_directory
from rocketlens.wire.codes import ResponseCode

ACT_SUFFIX: Final = ".act"
BEGUN: Final = "begun"
DONE: Final = "done"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
_KEPT_CHARACTERS: Final = 10_000
"""Characters of what a client or broker answered that are kept."""


@dataclass(frozen=True, slots=True)
class Act:
    """What was done, and what became of it."""

    name: str
    kind: Literal["send", "consume"]
    cluster: str
    reason: str
    user: str
    time: str
    facts: Mapping[str, str]
    """What was shown: topic, keys, group, client ..."""
    state: str = BEGUN
    """``begun``, ``done``, ``failed``: surely not done, or ``unknown``: it may be done."""
    why: str = ""
    results: Mapping[str, str] = field(default_factory=dict)


class Acts:
    """Does single acts, and keeps them. Belongs to one event loop."""

    def __init__(self, directory: Path | None = None, disk: Disk | None = None) -> None:
        """Use the files of a directory; None is that of jobs."""
        self._directory: Final = directory or jobs_directory()
        self._disk: Final = disk or Disk()
        self._running: Final[dict[str, asyncio.Task[None]]] = {}

    def path(self, name: str) -> Path:
        """Return the path of an act's file.

        :raises MessageNotFound: if it can be none.
        """
        if not is_name(name):
            raise MessageNotFound(f"there is no act {name[:80]!r}")
        return self._directory / f"{name}{ACT_SUFFIX}"

    async def do(self, act: Act, work: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        """Do something once, and keep what became of it; wait for that, also the second time.

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

    async def _work(self, act: Act, work: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        try:
            results = await work()
            done = replace(act, state=results.get("state", DONE), results=results)
        except (RocketLensError, OSError) as error:
            state = UNKNOWN if may_be_done(error) else FAILED
            done = replace(act, state=state, why=str(error)[:_KEPT_CHARACTERS])
        finally:
            del self._running[act.name]
        self._write(done)

    def _write(self, act: Act) -> None:
        self._disk.write_durably(self.path(act.name), json.dumps(asdict(act)).encode("ascii"))

    def has(self, name: str) -> bool:
        """Return whether there is an act of a name."""
        return self.path(name).exists()

    async def act(self, name: str) -> Act:
        """Return an act; one that was begun when the console ended is ``unknown``.

        :raises MessageNotFound: if there is none.
        :raises OSError: if it cannot be read.
        """
        path = self.path(name)
        try:
            found = Act(**json.loads(await in_thread(path.read_bytes, FILE_THREADS)))
        except FileNotFoundError:
            raise MessageNotFound(f"there is no job {name}") from None
        except (ValueError, TypeError) as error:
            raise RocketLensError(f"{path} is damaged: what was done is not known") from error
        if found.state == BEGUN and name not in self._running:
            return replace(found, state=UNKNOWN, why="the console ended before the answer came")
        return found

    def names(self) -> list[str]:
        """Return the names of all acts, the newest first."""
        found = (each.stem for each in self._directory.glob(f"*{ACT_SUFFIX}"))
        return sorted(filter(is_name, found), reverse=True)

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


def send_results(result: SendResult) -> dict[str, str]:
    """Return where a message was stored."""
    queue = result.message_queue
    return {
        "send_status": result.send_status.name,
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
        "queue": f"{queue.broker_name} {queue.queue_id}/{result.queue_offset}",
    }


def consume_results(result: ConsumedDirectly) -> dict[str, str]:
    """Return what a client made of a message; a listener that failed is no success."""
    answer = result.consume_result
    return {
        "state": DONE if result.is_consumed else FAILED,
        "client_id": result.client_id,
        "consume_result": "?" if answer is None else answer.name,
        "remark": (result.remark or "")[:_KEPT_CHARACTERS],
        "spent_time_ms": str(result.spent_time_ms),
    }


def act_now(**fields: Any) -> Act:
    """Return a new act of this moment."""
    return Act(time=datetime.now(UTC).isoformat(timespec="seconds"), **fields)
