"""Requests and values of acts, for forms and JSON."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, Self

from msgspec.structs import replace
from pydantic import Field, StringConstraints, field_validator

from rocketlens import limits
from rocketlens.client.resend.dead_letters import LetterFilter
from rocketlens.client.resend.follow import count_states
from rocketlens.client.resend.resend_journal import SENDING, UNKNOWN, Outcome, PlannedMessage
from rocketlens.client.send.message import Message
from rocketlens.client.send.unique_key import new_unique_key
from rocketlens.console.act.jobs import DEFAULT_RATE, JobState, is_name
from rocketlens.console.act.plans import ResendOptions, ShortName
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.values import ConsoleRequest, ConsoleValue
from rocketlens.errors import BadInput
from rocketlens.model.message import MessageExt
from rocketlens.model.properties import SYSTEM_PROPERTIES
from rocketlens.model.text.sentences import Sentence

DEFAULT_RESEND_MESSAGES: Final = 1_000
"""Messages of a job if its request names no number."""
JOB_ROWS: Final = 100
"""Messages of a job on one page."""
LEFT: Final = "left"
LETTER_FILTERS: Final = ("key", "cause", "since", "until", "where", "grep")
"""The form fields that filter dead letters."""
_Text = Annotated[str, StringConstraints(max_length=limits.MAX_CONSOLE_TEXT, strip_whitespace=True)]


class RateRequest(ConsoleRequest):
    """The rate of a job."""

    rate: int = Field(DEFAULT_RATE, ge=1, le=limits.MAX_RESEND_RATE, description="per second")


class Order(RateRequest):
    """Carries out an act that was shown before."""

    reason: str = Field(description="recorded with the act")
    name: str = Field(max_length=40, description="the name in the plan; a name acts once")
    digest: str | None = Field(None, description="of the plan; a changed plan is not done")

    @field_validator("name")
    @classmethod
    def _check_name(cls, text: str) -> str:
        if not is_name(text):
            raise BadInput(Sentence("form_outdated"))
        return text

    @field_validator("reason")
    @classmethod
    def _check_reason(cls, text: str) -> str:
        reason = " ".join(text.split())
        if not reason:
            raise BadInput(Sentence("needs_reason"))
        if len(reason) > limits.MAX_CONSOLE_REASON:
            raise BadInput(Sentence("long_reason", limit=limits.MAX_CONSOLE_REASON))
        return reason


class BatchOrder(Order):
    """Carries out an act on several messages. The digest is required."""

    digest: str = Field(max_length=40, description="of the plan; a changed plan is not done")


class ResendPlanRequest(ResendOptions):
    """The plan to send a stored message again."""

    message: MessageAddress


class ResendRequest(ResendPlanRequest, Order):
    """Sends a stored message again."""


class BatchPlanRequest(ResendOptions):
    """The plan to send several messages again."""

    most: int = Field(
        DEFAULT_RESEND_MESSAGES,
        ge=1,
        le=limits.MAX_RESEND_MESSAGES,
        description="the maximum number of messages",
    )


class BatchRequest(BatchPlanRequest, BatchOrder):
    """Sends again what a search finds."""


class ChosenPlanRequest(ResendOptions):
    """The plan to send chosen messages of one source again."""

    messages: list[MessageAddress] = Field(min_length=1, max_length=limits.MAX_CHOSEN_MESSAGES)


class ChosenRequest(ChosenPlanRequest, BatchOrder):
    """Sends chosen messages again."""


class RedrivePlanRequest(BatchPlanRequest):
    """The plan to send the dead letters of a group again."""

    group: ShortName = Field("", description="the consumer group of the dead letters")
    cluster: ShortName = Field("", description="the source that has them")
    original: bool = Field(default=False, description="send to the original topics, to all groups")
    again: bool = Field(default=False, description="also send what earlier jobs have sent")
    key: _Text = Field("", description="only messages with this key or unique key")
    cause: _Text = Field("", description="only messages with this text in exception or topic")
    since: _Text = Field("", description="only messages stored at or after this time")
    until: _Text = Field("", description="only messages stored at or before this time")
    where: _Text = Field("", description="only messages that match this expression")
    grep: _Text = Field("", description="only messages with this pattern in the decoded body")
    only: list[ShortName] = Field(
        default=[],
        max_length=limits.MAX_CHOSEN_MESSAGES,
        description="only these offset message ids; empty: all",
    )

    @property
    def filters(self) -> dict[str, str]:
        """The filters of dead letters that are not empty, by field."""
        return {name: getattr(self, name) for name in LETTER_FILTERS if getattr(self, name)}

    @property
    def asked(self) -> LetterFilter:
        asked = LetterFilter.of(self.filters)
        times = {"since": "begin", "until": "end"}
        options = {times.get(name, name): value for name, value in asked.options.items()}
        return replace(asked, options=options)


class RedriveRequest(RedrivePlanRequest, BatchOrder):
    """Sends the dead letters of a group again."""


class ConsumeRequest(Order):
    """Has a client consume a stored message."""

    message: MessageAddress
    group: ShortName
    client_id: ShortName


class NewMessage(ConsoleRequest):
    """A new message to send."""

    cluster: ShortName = Field(description="a source")
    topic: ShortName = Field(description="an existing topic")
    body: str = Field("", description="the body as text")
    body_base64: str = Field("", description="the body as base64, instead of text")
    tags: _Text = ""
    keys: _Text = Field("", description="separated by spaces")
    properties: dict[str, str] = Field(default={}, description="user properties")

    @classmethod
    def of_form(cls, fields: Mapping[str, str]) -> Self:
        """Read a form, whose properties are lines ``NAME=VALUE``."""
        # Browsers send all line ends as CR LF.
        text = fields.get("body", "").replace("\r\n", "\n")
        is_base64 = fields.get("encoding") == "base64"
        return cls(
            cluster=fields.get("cluster", ""),
            topic=fields.get("topic", ""),
            body="" if is_base64 else text,
            body_base64="".join(text.split()) if is_base64 else "",
            tags=fields.get("tags", ""),
            keys=" ".join(fields.get("keys", "").split()),
            properties=dict(_pairs(fields.get("properties", "").splitlines())),
        )

    @property
    def content(self) -> bytes:
        """The body.

        :raises BadInput: if it is not base64, or if there are two bodies.
        """
        if self.body and self.body_base64:
            raise BadInput(Sentence("two_bodies"))
        try:
            if self.body_base64:
                return base64.b64decode(self.body_base64.encode("ascii"), validate=True)
            return self.body.encode()
        except (UnicodeEncodeError, binascii.Error) as error:
            name = "not_base64" if self.body_base64 else "not_unicode"
            raise BadInput(Sentence(name)) from error

    def message(self, topic: str) -> Message:
        """Return the message with a new unique key.

        :raises BadInput: if a part cannot be sent.
        """
        return Message(
            topic,
            self.content,
            tags=self.tags or None,
            keys=self.keys or (),
            properties=self.properties,
            unique_key=new_unique_key(),
        )


class SendMessageBody(NewMessage, Order):
    """Sends a new message."""


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        name, separator, value = line.partition("=")
        if line.strip() and not (separator and name and value):
            raise BadInput(Sentence("invalid_property", line=repr(line[:80])))
        if line.strip():
            yield name.strip(), value


def form_fields(message: MessageExt) -> dict[str, str]:
    """Return the form fields of a message. The body is base64 if a browser would change it as text.

    :raises BadInput: if the body cannot be decompressed.
    """
    if message.body_error is not None:
        raise BadInput(Sentence("body_unread", why=message.body_error))
    # Bytes that are not UTF-8 become unprintable characters.
    body, encoding = message.body.decode("utf-8", "surrogateescape"), "text"
    if not all(each.isprintable() or each in "\n\t" for each in body):
        body, encoding = base64.b64encode(message.body).decode("ascii"), "base64"
    own = {k: v for k, v in message.properties.items() if k not in SYSTEM_PROPERTIES}
    return {
        "topic": message.topic,
        "tags": message.tags or "",
        "keys": " ".join(message.keys),
        "properties": "\n".join(f"{name}={value}" for name, value in own.items()),
        "encoding": encoding,
        "body": body,
    }


class PlannedValue(ConsoleValue):
    """A message of a job, and its outcome."""

    number: int
    state: Literal["sent", "failed", "unknown", "sending", "left"]
    msg_id: str
    offset_msg_id: str
    topic: str
    queue_id: int
    queue_offset: int
    target: str = Field(description="the target topic; empty: unknown")
    new_offset_msg_id: str = Field(description="the id of the copy, if it is stored")
    why: str = Field(description="why it failed or is unknown")
    came: dict[str, str] = Field(default={}, description="the copy's state by group: consumed, ...")

    @classmethod
    def planned(
        cls,
        number: int,
        message: PlannedMessage,
        outcome: Outcome | None = None,
        came: Mapping[str, Mapping[int, str]] | None = None,
    ) -> "PlannedValue":
        state = LEFT if outcome is None else outcome.state
        return cls.of(
            message,
            number=number,
            state=state,
            msg_id=message.unique_key or message.offset_msg_id,
            new_offset_msg_id=outcome.offset_msg_id if outcome else "",
            why=outcome.value if outcome and state in {"failed", "unknown"} else "",
            came={name: each[number] for name, each in (came or {}).items() if number in each},
        )


class PlanValue(ConsoleValue):
    """The plan of a job."""

    name: str = Field(description="send it back to act; a name acts once")
    selection: str
    target: str
    source: str
    cluster: str
    count: int
    digest: str = Field(description="send it back: if the plan has changed, nothing is done")
    messages: list[PlannedValue] = Field(description="the first page")
    properties: dict[str, str] | None = Field(None, description="of the copy of a single message")
    notes: dict[str, int] = Field(
        default={},
        description="left out: earlier, sent before; older, records of the same messages; newest, "
        "all but this many. Included: again, sent before; same_id, sharing a message id",
    )


class RunValue(ConsoleValue):
    """A start, end or pause of a job."""

    what: str
    time: str


class JobValue(ConsoleValue):
    """A job: its messages, its progress, and their outcomes."""

    name: str
    state: Literal["running", "ending", "done", "stopped", "open"]
    selection: str
    target: str
    cluster: str
    origin: str = Field(description="the store or archive with the messages; empty: the cluster")
    reason: str
    user: str
    time: str
    total: int
    counts: dict[str, int] = Field(description="messages sent, failed, unknown and left")
    error: str = Field(description="why it ended early in this console")
    came: dict[str, dict[str, int]] = Field(
        description="copies by group: how many are consumed, retrying, dead_letter, not_yet"
    )
    is_followed: bool = Field(description="true if these outcomes are being looked up")
    runs: list[RunValue]
    shown: int = Field(description="messages in the requested state")
    messages: list[PlannedValue] = Field(description="one page of these messages")

    @classmethod
    def of_job(cls, job: JobState, *, state: str = "", page: int = 0) -> "JobValue":
        """Return a job with one page of its messages, all or those in ``state``."""
        contents = job.contents
        assert contents is not None  # noqa: S101 - only a list has jobs without
        outcomes = contents.outcomes
        numbers = [
            number
            for number in range(1, len(contents.messages) + 1)
            if not state or state == _word(outcomes.get(number))
        ]
        return cls.of(
            contents.header,
            name=job.name,
            state=job.word,
            total=len(contents.messages),
            counts=contents.counts(),
            error=job.error,
            came=count_states(contents),
            is_followed=job.is_followed,
            runs=[RunValue(what=what, time=time) for what, time in contents.audits],
            shown=len(numbers),
            messages=[
                PlannedValue.planned(
                    number, contents.messages[number - 1], outcomes.get(number), contents.came
                )
                for number in numbers[page * JOB_ROWS : (page + 1) * JOB_ROWS]
            ],
        )


def _word(outcome: Outcome | None) -> str:
    if outcome is None:
        return LEFT
    return UNKNOWN if outcome.state == SENDING else outcome.state


class NameValue(ConsoleValue):
    """A name for an act."""

    name: str


class JobSummary(ConsoleValue):
    """A job in a list."""

    name: str
    kind: Literal["resend", "send", "consume", "damaged"]
    state: str
    what: str
    cluster: str
    user: str
    reason: str
    counts: dict[str, int] = Field(default={}, description="messages by state")


class JobsValue(ConsoleValue):
    """The newest jobs and acts."""

    jobs: list[JobSummary]
    more: int = Field(description="how many older ones are left out")
