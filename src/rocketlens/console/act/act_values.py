"""What acting takes and returns, for API, pages and OpenAPI."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rocketlens import limits
from rocketlens.client.resend.resend_journal import SENDING, UNKNOWN, Outcome, PlannedMessage
from rocketlens.console.act.jobs import DEFAULT_RATE, JobState, Order
from rocketlens.console.act.plans import ResendOptions
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.values import ConsoleValue

JOB_ROWS: Final = 100
"""Messages of a job on one page."""
LEFT: Final = "left"
_Name = Annotated[str, Field(max_length=limits.MAX_TOPIC_CHARACTERS)]


class ConsoleRequest(BaseModel):
    """The base of all bodies of requests: what is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Acted(ConsoleRequest):
    """What every act takes that is done, and not only shown."""

    reason: str = Field(
        description="the reason, which is recorded with the act",
        max_length=limits.MAX_CONSOLE_REASON,
    )
    name: str = Field(
        description="the name that the plan's answer has; two requests with one name are done once",
        max_length=40,
    )

    @property
    def order(self) -> Order:
        """The same as an order; errors as `Order.checked`."""
        return Order.checked(self.name, self.reason)


class MessageName(ConsoleRequest):
    """Where a message is: as the address of its page has it."""

    source: _Name
    topic: _Name
    broker: _Name = "-"
    queue_id: int = Field(ge=0, le=limits.MAX_INT)
    queue_offset: int = Field(ge=0, le=limits.MAX_LONG)

    @property
    def address(self) -> MessageAddress:
        """The same as an address."""
        return MessageAddress(**self.model_dump())


class ResendOptionsRequest(ConsoleRequest):
    """Where messages are sent again."""

    group: _Name = Field("", description="only this consumer group; empty: their topics")
    cluster: _Name = Field(
        "", description="the source to send to; needed for messages of a store directory only"
    )

    @property
    def options(self) -> ResendOptions:
        """The same as options."""
        return ResendOptions(self.group, self.cluster)


class OneMessage(ConsoleRequest):
    """What every act on a stored message takes."""

    message: MessageName


class ResendPlanRequest(ResendOptionsRequest, OneMessage):
    """A stored message to send again, to be shown first."""


class ResendRequest(ResendPlanRequest, Acted):
    """A stored message to send again."""


class RateRequest(ConsoleRequest):
    """How quickly a job sends."""

    rate: int = Field(
        DEFAULT_RATE, ge=1, le=limits.MAX_RESEND_RATE, description="messages a second"
    )


class BatchPlanRequest(ResendOptionsRequest):
    """Several messages to send again, to be shown first."""

    most: int = Field(
        limits.DEFAULT_RESEND_MESSAGES,
        ge=1,
        le=limits.MAX_RESEND_MESSAGES,
        description="messages at most",
    )

    @property
    def options(self) -> ResendOptions:
        """The same as options."""
        return ResendOptions(self.group, self.cluster, self.most)


class BatchActed(RateRequest, Acted):
    """What every job with several messages takes."""

    digest: str = Field(
        description="the digest of the plan; if the plan changed since, nothing is done",
        max_length=40,
    )

    @property
    def order(self) -> Order:
        """The same as an order; errors as `Order.checked`."""
        return Order.checked(self.name, self.reason, self.digest, self.rate)


class BatchRequest(BatchPlanRequest, BatchActed):
    """What a search finds, to send again."""


class _ChosenMessages(ConsoleRequest):
    messages: list[MessageName] = Field(min_length=1, max_length=limits.MAX_CHOSEN_MESSAGES)


class ChosenPlanRequest(ResendOptionsRequest, _ChosenMessages):
    """Messages of one source that were chosen one by one, to be shown first."""


class ChosenRequest(ChosenPlanRequest, BatchActed):
    """Messages that were chosen one by one, to send again."""


class RedrivePlanRequest(BatchPlanRequest):
    """The dead letters of a group, to be shown first."""

    group: _Name = Field("", description="whose dead letters these are")
    cluster: _Name = Field("", description="the source that has them")
    original: bool = Field(
        default=False, description="send them to their original topics, and so to all groups"
    )
    again: bool = Field(default=False, description="also send those that earlier jobs sent")
    only: list[_Name] = Field(
        default=[],
        max_length=limits.MAX_CHOSEN_MESSAGES,
        description="only these, by offset message id; empty: all",
    )


class RedriveRequest(RedrivePlanRequest, BatchActed):
    """The dead letters of a group, to send again."""


class ConsumeRequest(OneMessage, Acted):
    """A stored message for a client to consume."""

    group: _Name
    client_id: _Name


class SendMessageBody(Acted):
    """A new message to send."""

    cluster: _Name = Field(description="a source")
    topic: _Name = Field(description="a topic that exists")
    body: str = Field("", description="the body as text")
    body_base64: str = Field("", description="the body as base64, instead of text")
    tags: str = Field("", max_length=limits.MAX_CONSOLE_TEXT)
    keys: str = Field("", max_length=limits.MAX_CONSOLE_TEXT, description="separated by spaces")
    properties: dict[str, str] = Field(default={}, description="properties that your programs read")


class PlannedValue(ConsoleValue):
    """A message of a job, and what became of it."""

    number: int
    state: Literal["sent", "failed", "unknown", "sending", "left"]
    msg_id: str
    offset_msg_id: str
    topic: str
    queue_id: int
    queue_offset: int
    target: str = Field(description="the topic that it goes to; empty: it names none")
    new_offset_msg_id: str = Field(description="of the copy, if it is stored")
    why: str = Field(description="why it failed, or is not known")

    @classmethod
    def planned(
        cls, number: int, message: PlannedMessage, outcome: Outcome | None = None
    ) -> "PlannedValue":
        """Return the value of one message, with what became of it."""
        state = LEFT if outcome is None else outcome.state
        return cls.of(
            message,
            number=number,
            state=state,
            msg_id=message.unique_key or message.offset_msg_id,
            new_offset_msg_id=outcome.offset_msg_id if outcome else "",
            why=outcome.value if outcome and state in {"failed", "unknown"} else "",
        )


class PlanValue(ConsoleValue):
    """What a job would do."""

    name: str = Field(description="send it back with send, to do this once")
    selection: str
    target: str
    source: str
    cluster: str
    count: int
    digest: str = Field(description="send it back to do exactly this, and nothing if it changed")
    messages: list[PlannedValue] = Field(description="the first page of them")
    properties: dict[str, str] | None = Field(None, description="of the copy of a single message")
    notes: dict[str, int] = Field(
        default={},
        description="left out: earlier, sent before; more or newest: only so many; same_id: they "
        "have the message id of another one",
    )


class RunValue(ConsoleValue):
    """When a job began, ended or was paused."""

    what: str
    time: str


class JobValue(ConsoleValue):
    """A job: what it does, how far it is, and what became of its messages."""

    name: str
    state: Literal["running", "ending", "done", "stopped", "open"]
    selection: str
    target: str
    cluster: str
    origin: str = Field(description="the store directory that messages are read from, or empty")
    reason: str
    user: str
    time: str
    total: int
    counts: dict[str, int] = Field(description="messages sent, failed, unknown and left")
    error: str = Field(description="why it ended early in this console, or empty")
    runs: list[RunValue]
    shown: int = Field(description="messages in the state that was asked for")
    messages: list[PlannedValue] = Field(description="one page of these")

    @classmethod
    def of_job(cls, job: JobState, *, state: str = "", page: int = 0) -> "JobValue":
        """Return the value of a job, with a page of its messages in a state; empty: of all."""
        contents = job.contents
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
            runs=[RunValue(what=what, time=time) for what, time in contents.audits],
            shown=len(numbers),
            messages=[
                PlannedValue.planned(number, contents.messages[number - 1], outcomes.get(number))
                for number in numbers[page * JOB_ROWS : (page + 1) * JOB_ROWS]
            ],
        )


def _word(outcome: Outcome | None) -> str:
    if outcome is None:
        return LEFT
    return UNKNOWN if outcome.state == SENDING else outcome.state


class NameValue(ConsoleValue):
    """A name for something to do once."""

    name: str


class ActValue(ConsoleValue):
    """A single act, and what became of it."""

    name: str
    kind: Literal["send", "consume"]
    state: Literal["begun", "done", "failed", "unknown"] = Field(
        description="failed: surely not done; unknown: it may be done"
    )
    why: str = Field(description="why it failed, or is not known")
    cluster: str
    reason: str
    user: str
    time: str
    facts: dict[str, str]
    results: dict[str, str]


class JobSummary(ConsoleValue):
    """A job in a list."""

    name: str
    kind: Literal["resend", "send", "consume", "damaged"]
    state: str
    what: str
    cluster: str
    user: str
    reason: str
    counts: dict[str, int] = Field(default={}, description="of its messages, by state")


class JobsValue(ConsoleValue):
    """The newest jobs and acts."""

    jobs: list[JobSummary]
    more: int = Field(description="older ones that are not here")
