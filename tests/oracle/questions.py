"""Questions that any reader can be asked, and its answers in one form."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rocketlens.errors import AnswerIncomplete, MessageNotFound, RocketLensError
from rocketlens.model.answer import Answer
from rocketlens.model.message import MessageExt


class Found(NamedTuple):
    """What a reader showed of one message."""

    topic: str
    tags: str | None
    keys: tuple[str, ...]
    unique_key: str | None
    offset_msg_id: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int
    properties: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """An answer: messages, or an error."""

    found: tuple[Found, ...] = ()
    complete: bool = True
    truncated: bool = False
    says: str = ""
    """Coverage, or the words of an error."""
    error: str | None = None
    """The class of an error that is neither "not found" nor "incomplete"."""
    is_ours: bool = True
    """Whether that error is one that this package raises on purpose."""
    row_count: int = 0
    """How many messages were shown in a form that does not tell which."""


@dataclass(frozen=True)
class Question:
    """One question. ``about`` is the number of the message that must be in the answer.

    =============  =======================  ==============================================
    kind           texts                    must be in the answer
    =============  =======================  ==============================================
    offset-id      offset message id        that message
    unique-key     unique key               that message
    key            key, or unique key       all with the key, the newest `max_num`
    queue-offset   topic/queue/offset       that message
    time           (topic, begin, end)      all that were sent and acknowledged in between
    newest         (topic, max_num)         the newest `max_num` of the topic
    scan           (topic)                  all that were acknowledged before
    =============  =======================  ==============================================
    """

    kind: str
    text: str = ""
    topic: str | None = None
    about: int | None = None
    place: tuple[int, int] | None = None
    """Queue and offset."""
    begin_ms: int = 0
    end_ms: int | None = None
    max_num: int | None = None
    way: str = field(default="own", compare=False)
    """``own``: by the function for this kind; ``find``: by the one that takes all; ``no-topic``."""


def found_of(message: MessageExt) -> Found:
    """Return what matters of a message."""
    return Found(
        message.topic,
        message.tags,
        tuple(message.keys),
        message.unique_key,
        message.offset_msg_id,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.store_timestamp_ms,
        dict(message.properties),
        bytes(message.body),
    )


def reply_of_messages(messages: Iterable[MessageExt]) -> Reply:
    """Return an answer that has nothing but messages."""
    return Reply(tuple(found_of(message) for message in messages))


def reply_of_answer(answer: Answer) -> Reply:
    """Return an answer in the common form."""
    says = "; ".join(
        f"{c.source}[{c.kind}] {c.state}" + f": {c.error or c.note or ''}" for c in answer.coverage
    )
    reply = reply_of_messages(answer.messages)
    return replace(reply, complete=answer.complete, truncated=answer.truncated, says=says)


def reply_of(ask: Callable[[], Any]) -> Reply:
    """Ask; what is raised becomes part of the answer."""
    try:
        given = ask()
    except MessageNotFound as error:
        return Reply(says=str(error))
    except AnswerIncomplete as error:
        return Reply(complete=False, says=str(error))
    except Exception as error:  # noqa: BLE001 - whatever a reader raises is its answer
        is_ours = isinstance(error, RocketLensError)
        return Reply(complete=False, says=str(error), error=type(error).__name__, is_ours=is_ours)
    if isinstance(given, Reply):
        return given
    if isinstance(given, Answer):
        return reply_of_answer(given)
    return reply_of_messages([given])


def ask_store(store: Any, question: Question) -> Reply:
    """Ask what `rocketlens.open_store` returned."""
    return reply_of(lambda: _ask_store(store, question))


def _ask_store(store: Any, q: Question) -> Any:
    topic = None if q.way == "no-topic" else q.topic
    if q.kind == "scan":
        scan = store.scan(q.topic)
        reply = reply_of_messages(scan)
        failures = list(scan.failures)
        return replace(reply, complete=not failures, says=f"failures: {failures[:5]}")
    if q.kind in ("time", "newest"):
        return store.find(topic=q.topic, begin=q.begin_ms, end=q.end_ms, max_num=q.max_num)
    if q.way in ("find", "no-topic"):
        kind = "auto" if q.way == "no-topic" else q.kind
        return store.find(q.text, topic, kind=kind, max_num=q.max_num)
    if q.kind == "offset-id":
        return store.view_message(q.text)
    if q.kind == "unique-key":
        return store.view_message(q.topic, q.text)
    if q.kind == "queue-offset":
        return store.query_by_queue_offset(q.topic, *q.place)
    return store.query_message(topic, q.text, q.max_num)
