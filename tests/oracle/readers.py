"""Readers that stay open, each asked by one loop that judges what they answer.

A reader has ``ask(question)`` and ``close()``. A scan in progress is asked through `OpenScan`.
"""

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rocketlens
from rocketlens.client.blocking.sync_admin import SyncMQAdmin
from tests.oracle.judge import Expected, Judge, Verdict
from tests.oracle.ledger import LedgerView
from tests.oracle.questions import Found, Question, Reply, ask_store, found_of, reply_of
from tests.support.broker_process import PROGRAM
from tests.support.json_messages import body_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_STATE_CHARACTERS = 600
CLI_TIMEOUT_S = 120
NOTHING = "nothing found, COMPLETE: "
ADMIN_TIMEOUT_S = 30.0


class HandleReader:
    """A store opened once."""

    kinds = (
        *(("key", way) for way in ("own", "find", "no-topic")),
        *(("offset-id", way) for way in ("own", "find")),
        *(("unique-key", way) for way in ("own", "find", "no-topic")),
        *(("queue-offset", way) for way in ("own", "find")),
        ("shared-key", "own"),
    )

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = rocketlens.open_store(path)

    def ask(self, question: Question) -> Reply:
        return ask_store(self.store, question)

    def state(self) -> str:
        """What the handle remembers, for whoever looks into a failure."""
        source = self.store._reader
        log = source.log
        known = {
            "segments": [
                f"{s.path.name}+{s.size}" for s in (*log.segments[:1], *log.segments[-2:])
            ],
            "tail": _shown(source._tail),
            "index": [str(state)[:200] for state in source.index.states[-3:]],
        }
        return json.dumps(known, default=str)

    def close(self) -> None:
        self.store.close()


def _shown(remembered: object) -> dict[str, str]:
    """Show all plain values that something remembers, whatever they are called."""
    fields = getattr(remembered, "__dict__", {})
    return {
        name: repr(value)[:MAX_STATE_CHARACTERS]
        for name, value in fields.items()
        if isinstance(value, int | str | bytes | list | tuple | type(None))
    }


class FreshReader:
    """A store opened for each question."""

    kinds = HandleReader.kinds

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, question: Question) -> Reply:
        def ask() -> Reply:
            with rocketlens.open_store(self.path) as store:
                return ask_store(store, question)

        return reply_of(ask)

    def state(self) -> str:
        return "a new handle for each question"

    def close(self) -> None:
        pass


class CommandReader:
    """``rocketlens find``, a process for each question."""

    kinds = (
        *((kind, "find") for kind in ("key", "offset-id", "unique-key", "queue-offset")),
        ("key", "no-topic"),
        ("time", "find"),
    )

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count = 0

    def ask(self, question: Question) -> Reply:
        self._count += 1
        form = ("json", "table", "jsonl")[self._count % 3]
        words = [*PROGRAM, "find", "--store", str(self.path), "-o", form]
        words += [question.text] if question.text else []
        words += ["--topic", question.topic] if question.topic and question.way == "find" else []
        words += ["--since", str(question.begin_ms)] if question.begin_ms else []
        words += ["--until", str(question.end_ms)] if question.end_ms is not None else []
        words += ["--max", str(question.max_num)] if question.max_num is not None else []
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=CLI_TIMEOUT_S, check=False
        )
        return _reply_of_command(form, done, question)

    def state(self) -> str:
        return "a process for each question"

    def close(self) -> None:
        pass


def _reply_of_command(
    form: str, done: "subprocess.CompletedProcess[str]", question: Question
) -> Reply:
    if done.returncode == 2 and done.stderr.startswith("rocketlens: "):
        return Reply(complete=False, says=done.stderr.strip(), error="exit code 2")
    says = f"exit code {done.returncode}; {done.stderr.strip()[-1500:]}"
    if done.returncode not in (0, 1, 3):
        return Reply(complete=False, says=says, error="exit code", is_ours=False)
    complete = done.returncode != 3
    if form == "table":
        # A row says too little to be judged; how many there are must be said alike everywhere.
        count, _, rest = done.stderr.partition(" message")
        row_count = int(count) if count.isdigit() else 0
        claims = (", COMPLETE: " in rest or done.stderr.startswith(NOTHING)) == complete
        if not claims or bool(row_count) != bool(done.stdout.strip()):
            return Reply(complete=False, says=says, error="contradiction", is_ours=False)
        if complete and (done.returncode == 0) != bool(row_count):
            return Reply(complete=False, says=says, error="contradiction", is_ours=False)
        return Reply(complete=complete, says=says, row_count=row_count)
    if form == "json":
        answer = json.loads(done.stdout)
        messages, truncated = answer["messages"], answer["truncated"]
        if answer["complete"] != complete:
            return Reply(complete=False, says=says, error="contradiction", is_ours=False)
    else:
        messages, truncated = [json.loads(line) for line in done.stdout.splitlines()], False
    if complete and (done.returncode == 0) != bool(messages):
        return Reply(complete=False, says=says, error="contradiction", is_ours=False)
    found = tuple(_found_of_json(fields) for fields in messages)
    return Reply(found, complete, truncated or question.max_num == len(found), says)


def _found_of_json(fields: dict[str, Any]) -> Found:
    values = {name: fields[name] for name in Found._fields if name not in ("body", "keys")}
    return Found(**values, keys=tuple(fields["keys"]), body=body_of(fields))


class WireReader:
    """`MQAdmin` on the broker that serves, while it is ours: a real one finds a little later."""

    kinds = (("key", "own"), ("unique-key", "own"), ("offset-id", "own"), ("shared-key", "own"))

    def __init__(self, view: LedgerView) -> None:
        self.view = view
        self._admin: SyncMQAdmin | None = None
        self._changes = -1

    @property
    def can_ask(self) -> bool:
        """Whether a broker of ours serves."""
        return self.view.broker is not None and self.view.broker_is_ours

    def ask(self, question: Question) -> Reply:
        if not self.can_ask:
            return Reply(complete=False, error="nobody to ask")
        if self._admin is None or self._changes != self.view.broker_changes:
            self.close()
            self._changes = self.view.broker_changes
            self._admin = SyncMQAdmin(self.view.broker, timeout_s=ADMIN_TIMEOUT_S)
        admin = self._admin
        if question.kind == "offset-id":
            return reply_of(lambda: admin.view_message(question.text))
        if question.kind == "unique-key":
            return reply_of(lambda: admin.view_message(question.topic, question.text))
        return reply_of(
            lambda: admin.query_message(question.topic, question.text, question.max_num)
        )

    def state(self) -> str:
        return f"asks {self.view.broker}"

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None


class OpenScan:
    """A scan that goes on bit by bit while other questions are asked of the same handle."""

    def __init__(self, store: Any, judge: Judge, topic: str | None) -> None:
        self.question = Question("scan", topic=topic)
        self.judge = judge
        self.expected: Expected = judge.expect(self.question)
        if topic is None:
            self.expected.messages.update(judge.view.here())
        self.scan = store.scan(topic)
        self._messages: Iterator[Any] = iter(self.scan)
        self.count = 0
        self.verdicts: list[Verdict] = []

    def step(self, count: int) -> bool:
        """Read some messages; says whether there are more."""
        for _ in range(count):
            message = next(self._messages, None)
            if message is None:
                return False
            self.count += 1
            self.judge.view.read()
            self.verdicts += self.judge.wrong(self.expected, found_of(message))
        return True

    def reply(self) -> Reply:
        """Return what the scan said in the end; its messages were judged as they came."""
        failures = list(self.scan.failures)
        return Reply(complete=not failures, says=f"{self.count} messages; failures: {failures[:5]}")
