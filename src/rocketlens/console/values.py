"""The values that the API returns and the pages show, declared once for both and for OpenAPI."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation, ValidationError

from rocketlens.errors import BadInput
from rocketlens.model.life import LifeState
from rocketlens.model.text.sentences import SENTENCES, Sentence
from rocketlens.wire.codes import version_name

SentenceText = Annotated[str, SkipValidation]
"""Text that stays a `rocketlens.model.text.sentences.Sentence`, which pages translate."""
_LACKING: Final = object()
_MISTAKES: Final = 3
"""Mistakes of a request that one error message names."""
_BROKER: Final[Any] = Field(validation_alias="broker_name")


class ConsoleValue(BaseModel):
    """The base of all values."""

    model_config = ConfigDict(frozen=True, from_attributes=True, use_attribute_docstrings=True)

    @classmethod
    def of(cls, origin: object, **others: Any) -> Self:
        """Return the value of an object: its attributes and ``others``, as the fields need them."""
        own = ((name, getattr(origin, name, _LACKING)) for name in cls.model_fields.keys() - others)
        fields = {name: value for name, value in own if value is not _LACKING}
        return cls.model_validate({**fields, **others})


class ConsoleRequest(BaseModel):
    """The base of all request bodies. Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of_form(cls, fields: Mapping[str, str]) -> Self:
        """Read a form or an address. Unknown fields are ignored.

        :raises BadInput: if a field cannot be used.
        """
        try:
            return cls.model_validate({k: v for k, v in fields.items() if k in cls.model_fields})
        except ValidationError as error:
            raise BadInput(mistakes_in(error.errors())) from error


def mistakes_in(errors: Sequence[Any]) -> str:
    """Return a sentence with the first mistakes that pydantic found."""
    first, *others = map(_mistake, errors[:_MISTAKES])
    for each in others:
        first = Sentence("both", first=first, second=each)
    return first


def _mistake(error: Mapping[str, Any]) -> str:
    given = error.get("ctx", {})
    if isinstance(given.get("error"), BadInput):
        own: str = given["error"].args[0]
        return own
    name, sentence = ".".join(map(str, error["loc"])), f"value_{error['type']}"
    if sentence in SENTENCES:
        return Sentence(sentence, name=name, **given)
    return f"{name}: {error['msg']}"


class CoverageValue(ConsoleValue):
    """The searched part of a source, and its failures."""

    source: str
    kind: str
    state: str
    is_failure: bool
    error: SentenceText | None = None
    note: SentenceText | None = Field(default=None, description="a hint about the search")
    indexed_to_ms: int | None = None
    begin_offset: int | None = None
    end_offset: int | None = None
    log_end_offset: int | None = None
    relies_on: SentenceText | None = None
    held_from_ms: int | None = None


class MessageRow(ConsoleValue):
    """A message in a list."""

    source: str = Field(description="the name of its source")
    topic: str
    topic_kind: Literal["normal", "retry", "dead_letter", "system", "light"]
    state: LifeState = Field(description="the state of the message: delayed, retry, ...")
    real_topic: str | None = Field(description="the topic that its producer sent it to, if known")
    group: str | None = Field(description="the consumer group of a retry or a dead letter")
    broker: str
    queue_id: int
    queue_offset: int
    path: str = Field(description="the address of its page")
    msg_id: str
    unique_key: str | None
    offset_msg_id: str
    tags: str | None
    keys: list[str]
    store_timestamp_ms: int
    born_timestamp_ms: int
    reconsume_times: int
    body_bytes: int
    body_format: str = Field(description="the likely format, from the beginning of the body")
    preview: str = Field(description="the beginning of the body, safe to show")
    is_masked: bool = Field(default=False, description="true if parts of it are masked: ***")
    values: dict[str, str] = Field(default={}, description="of requested properties and fields")


FacetName = Literal["topic", "tag", "hour"]


class FacetCount(ConsoleValue):
    """One value of a facet."""

    value: str | None = Field(
        description="a topic; a tag, or null for messages without one; the start of an hour, in "
        "epoch milliseconds"
    )
    count: int = Field(description="messages of the page with this value")


class FacetValue(ConsoleValue):
    """The messages of a page by topic, by tag, or by hour."""

    name: FacetName
    counts: list[FacetCount] = Field(description="two or more")
    more: int = Field(description="how many values are not listed")


class TimeCountsValue(ConsoleValue):
    """Messages by time. Times are epoch milliseconds."""

    begin_ms: int = Field(description="the start of the first bar")
    step_ms: int = Field(description="the length of each bar")
    counts: list[int] = Field(description="the messages of each bar")
    is_of_all: bool = Field(default=False, description="all results, not only those of the page")


class SearchAnswer(ConsoleValue):
    """The answer to a search: complete, or incomplete with reasons."""

    query: str
    complete: bool = Field(description="true if everything that can match was searched")
    truncated: bool = Field(description="true if there are older messages: see next_cursor")
    messages: list[MessageRow] = Field(description="newest first")
    next_cursor: str | None = Field(description="for the next page")
    facets: list[FacetValue] = Field(description="of this page only, and with two or more values")
    time_counts: TimeCountsValue | None = Field(description="null if all are at one time")
    relies_on: list[SentenceText] = Field(description="assumptions about parts that were not read")
    coverage: list[CoverageValue]
    elapsed_ms: int


class IdPart(ConsoleValue):
    """One part of an id."""

    name: str
    value: str
    epoch_ms: int | None = None


class DecodedId(ConsoleValue):
    """A message id and its parts; no parts if its format is unknown."""

    name: Literal["unique_key", "offset_msg_id"]
    text: str
    parts: list[IdPart]


class BodyValue(ConsoleValue):
    """A body in the requested form."""

    form: Literal["decoded", "text", "json", "hex", "base64"]
    content: str
    is_cut: bool = Field(description="true if the content is cut")
    is_json: bool = Field(description="true if the content is JSON")
    format: str = Field(description="the format of the body: json, text, protobuf, ...")
    why: SentenceText = Field(description="the reason for this format")
    is_guess: bool
    layers: list[str] = Field(description="the compressions that were removed")
    charset: str | None
    error: str | None = Field(description="why it could not be decoded or decompressed")


class MessageDetail(ConsoleValue):
    """Everything about one message."""

    message: MessageRow
    properties: dict[str, str]
    system_properties: dict[str, str] = Field(description="RocketMQ's own properties")
    ids: list[DecodedId]
    physical_offset: int
    store_size: int
    store_host: str
    born_host: str
    sys_flag: int
    flag: int
    body_crc: int
    prepared_transaction_offset: int
    due_ms: int | None = Field(description="when a delayed message is, or was, due")
    body: BodyValue


class StoryEventValue(ConsoleValue):
    """An event in the life of a message."""

    time_ms: int | None
    kind: str
    text: SentenceText
    source: SentenceText
    group: str | None
    topic: str | None
    queue_id: int | None
    queue_offset: int | None


class GroupStoryValue(ConsoleValue):
    """The state of a message in a consumer group."""

    group: str
    state: str
    rests_on: SentenceText
    source: SentenceText
    since_ms: int | None
    retries: int
    max_retries: int | None
    repeats: list[SentenceText]


class UnlearntValue(ConsoleValue):
    """Something that could not be found out."""

    what: SentenceText
    why: SentenceText
    is_failure: bool


class StoryValue(ConsoleValue):
    """The story of one message."""

    complete: bool
    found: bool
    events: list[StoryEventValue]
    groups: list[GroupStoryValue]
    repeats: list[SentenceText]
    unlearnt: list[UnlearntValue]
    coverage: list[CoverageValue]


class ToldValue(ConsoleValue):
    """A message and its story."""

    message: MessageRow
    story: StoryValue


class KeyStoryValue(ConsoleValue):
    """The stories of all messages that a look-up finds."""

    query: str
    summary: SentenceText = Field(description="what became of them, in one sentence")
    complete: bool
    told: list[ToldValue] = Field(description="the worst first")
    others: list[str] = Field(description="further messages, as TOPIC/QUEUE/OFFSET")


class QueueValue(ConsoleValue):
    """One queue of a topic."""

    broker: str | None = _BROKER
    queue_id: int
    min_offset: int
    max_offset: int
    oldest_ms: int | None
    newest_ms: int | None


class LiteTopicsValue(ConsoleValue):
    """The lite topics of one parent topic."""

    count: int | None
    ttl_minutes: int
    groups: tuple[str, ...]


class TopicValue(ConsoleValue):
    """A topic. None stands for unknown values."""

    source: str
    name: str
    kind: str
    is_deleted: bool
    is_of_broker: bool = Field(description="a broker created it, named after itself or its cluster")
    messages: int | None
    waiting: int | None = Field(description="delayed messages and timers that are not due yet")
    waiting_is_exact: bool = Field(description="true if all of these were counted")
    lite: LiteTopicsValue | None
    size_bytes: int | None
    oldest_ms: int | None
    newest_ms: int | None
    queues: list[QueueValue] | None


class TopicsValue(ConsoleValue):
    """Topics."""

    complete: bool
    topics: list[TopicValue]
    coverage: list[CoverageValue]


class GroupQueueValue(ConsoleValue):
    """The progress of a group in one queue."""

    topic: str
    broker: str | None = _BROKER
    queue_id: int
    max_offset: int
    consumer_offset: int
    lag: int
    last_consumed_ms: int | None


class MemberValue(ConsoleValue):
    """A client of a group."""

    client_id: str
    address: str
    language: str | None
    version: Annotated[str, BeforeValidator(version_name)]


class GroupValue(ConsoleValue):
    """A consumer group. None stands for unknown values."""

    source: str
    name: str
    members: list[MemberValue] | None
    message_model: str | None
    subscriptions: dict[str, str] | None
    lag: int | None
    to_retry: int | None
    dead_letters: int | None
    last_dead_letter_ms: int | None
    last_consumed_ms: int | None
    behind_ms: int | None = Field(description="age of the last consumed message in the worst queue")
    is_left: bool = Field(description="true if it has lag, and no members")
    has_new_dead_letters: bool = Field(description="dead letters of the last 24 hours")
    queues: list[GroupQueueValue] | None


class GroupsValue(ConsoleValue):
    """Consumer groups."""

    complete: bool
    groups: list[GroupValue]
    coverage: list[CoverageValue]


class SourceValue(ConsoleValue):
    """A source of the console."""

    name: str
    kind: Literal["store", "cluster", "archive"]
    title: str


class SourcesValue(ConsoleValue):
    """All sources of the console."""

    sources: list[SourceValue]
    version: str


class ErrorValue(ConsoleValue):
    """An error."""

    code: str = Field(description="for programs: bad_input, not_found, incomplete, ...")
    message: SentenceText = Field(description="what, where, and what to do")
    coverage: list[CoverageValue] = Field(default=[], description="if the answer is incomplete")


class ErrorAnswer(ConsoleValue):
    """The body of every error answer."""

    error: ErrorValue


def error_answer(code: str, message: str, coverage: Any = ()) -> ErrorAnswer:
    values = [CoverageValue.of(each) for each in coverage]
    return ErrorAnswer(error=ErrorValue(code=code, message=message, coverage=values))
