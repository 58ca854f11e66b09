"""Doors to messages: Python, the command line and the console, each asked the same questions."""

import contextlib
import io
import json
from typing import NamedTuple
from urllib.parse import urlencode

import rocketlens
from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.main import main
from rocketlens.net.sync import LoopThread
from rocketlens.terminal.contexts import Context
from tests.support.console_client import console_client

OPTIONS = {
    "kind": "--kind",
    "begin": "--since",
    "end": "--until",
    "max_num": "--max",
    "where": "--where",
    "grep": "--grep",
}
"""What the command line has for arguments of ``find``."""
PARAMETERS = {"text": "q", "begin": "since", "end": "until", "max_num": "max"}
"""What the console has for them, if it has another name."""


class Found(NamedTuple):
    """An answer: where its messages are, oldest first."""

    positions: list[str]
    complete: bool
    truncated: bool


class Refused(Exception):
    """A question that was refused, with the words."""


@contextlib.contextmanager
def python(kind, where):
    """Ask in Python."""
    if kind == "several":
        opened = contextlib.nullcontext()
    elif kind == "cluster":
        opened = rocketlens.SyncMQAdmin(where)
    else:
        opened = {"store": rocketlens.open_store, "archive": rocketlens.open_archive}[kind](where)

    def ask(**question):
        text = question.pop("text", None)
        try:
            if source is None:
                answer = rocketlens.find(text, sources=where, **question)
            else:
                answer = source.find(text, **question)
        except (BadInput, TopicNotFound) as error:
            raise Refused(str(error)) from error
        return Found([each.position for each in answer], answer.complete, answer.truncated)

    with opened as source:
        yield ask


def topics_of(question):
    topics = question.get("topic") or []
    return [topics] if isinstance(topics, str) else topics


@contextlib.contextmanager
def commands(kind, where):
    """Ask by ``rocketlens find``; its exit code must be that of the answer."""
    source = [{"cluster": "--namesrv"}.get(kind, f"--{kind}"), str(where)]

    def ask(**question):
        words = [] if question.get("text") is None else [question["text"]]
        for topic in topics_of(question):
            words += ["--topic", topic]
        for name, option in OPTIONS.items():
            if question.get(name) is not None:
                words += [option, str(question[name])]
        words += ["--only-delivered"] if question.get("only_delivered") else []
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["find", *words, *source, "-o", "json"])
        if code == 2:
            assert (out.getvalue(), err.getvalue().count("\n")) == ("", 1)
            raise Refused(err.getvalue())
        answer = json.loads(out.getvalue())
        messages = answer["messages"]
        assert code == ((0 if messages else 1) if answer["complete"] else 3), (words, code)
        positions = [f"{m['topic']}/{m['queue_id']}/{m['queue_offset']}" for m in messages]
        return Found(positions, answer["complete"], answer["truncated"])

    yield ask


@contextlib.contextmanager
def console(kind, where):
    """Ask the API of a console."""
    thread, name = LoopThread(), {"cluster": "namesrv"}.get(kind, kind)
    entered = console_client(("here", Context(**{name: str(where)})))
    client = thread.run(entered.__aenter__())

    def ask(**question):
        asked = {**question, "topic": ",".join(topics_of(question))}
        fields = {PARAMETERS.get(each, each): value for each, value in asked.items()}
        query = urlencode({each: value for each, value in fields.items() if value is not None})
        answer = thread.run(client.get(f"/api/search?{query}"))
        if answer.status_code in {400, 404}:
            raise Refused(answer.json()["error"]["message"])
        value = answer.json()
        positions = []
        for each in reversed(value["messages"]):
            *_, topic, _, queue_id, queue_offset = each["path"].split("/")
            positions.append(f"{topic}/{queue_id}/{queue_offset}")
        return Found(positions, value["complete"], value["truncated"])

    yield ask
    thread.run(entered.__aexit__(None, None, None))
    thread.close()


DOORS = [
    *((each, kind) for each in (python, commands, console) for kind in ("store", "cluster")),
    *((each, "archive") for each in (python, commands, console)),
    (python, "several"),
]
