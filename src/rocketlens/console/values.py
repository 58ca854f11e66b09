"""What the API returns, and the pages show: declared once, for both and for OpenAPI."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SkipValidation,
    ValidationError,
)

from rocketlens.errors import BadInput
from rocketlens.model.life import LifeState
from rocketlens.model.text.sentences import SENTENCES, Sentence
from rocketlens.wire.codes import version_name

SentenceText = Annotated[str, SkipValidation]
"""Text that stays a `rocketlens.model.text.sentences.Sentence`, which pages have in other
languages."""
_LACKING: Final = object()
_MISTAKES: Final = 3
"""Mistakes of a request that an answer names."""
_BROKER: Final[Any] = Field(validation_alias="broker_name")


class ConsoleValue(BaseModel):
    """The base of all values."""

    model_config = ConfigDict(frozen=True, from_attributes=True, use_attribute_docstrings=True)

    @classmethod
    def of(cls, origin: object, **others: Any) -> Self:
        """Return the value of an object: each field is its attribute of that name, or of
        ``others``. Fields that are values take objects likewise.
        """
        own = ((name, getattr(origin, name, _LACKING)) for name in cls.model_fields.keys() - others)
        fields = {name: value for name, value in own if value is not _LACKING}
        return cls.model_validate({**fields, **others})


class ConsoleRequest(BaseModel):
    """The base of all bodies of requests: what is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of_form(cls, fields: Mapping[str, str]) -> Self:
        """Return the same of a form, or of an address, whose other fields are ignored.

        :raises BadInput: if a field cannot be used.
        """
        try:
            return cls.model_validate({k: v for k, v in fields.items() if k in cls.model_fields})
        except ValidationError as error:
            raise BadInput(mistakes_in(error.errors())) from error


def mistakes_in(errors: Sequence[Any]) -> str:
    """Return a text that names the first mistakes that pydantic found."""
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
    """What was searched of a source, and what of it failed."""

    source: str
    kind: str
    state: str
    is_failure: bool
    error: SentenceText | None = None
    note: SentenceText | None = Field(default=None, description="a hint of what was searched")
    indexed_to_ms: int | None = None
    begin_offset: int | None = None
    end_offset: int | None = None
    log_end_offset: int | None = None
    relies_on: SentenceText | None = None
    held_from_ms: int | None = None


class MessageRow(ConsoleValue):
    """A message as a list has it."""

    source: str = Field(description="the name of a source that has it")
    topic: str
    topic_kind: Literal["normal", "retry", "dead_letter", "system", "light"]
    state: LifeState = Field(description="where the message is: delayed, retry, ...")
    real_topic: str | None = Field(description="the topic that its producer meant, if it is known")
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
    body_format: str = Field(description="the likely format, by the beginning of the body")
    preview: str = Field(description="the beginning of the body, safe to show")
    is_masked: bool = Field(default=False, description="whether something of it is hidden: ***")
    values: dict[str, str] = Field(
        default={},
        description="the properties and fields of the body that columns asks for, by column",
    )


FacetName = Literal["topic", "tag", "hour"]


class FacetCount(ConsoleValue):
    """One value of a facet."""

    value: str | None = Field(
        description="a topic; a tag, or null for messages without one; the begin of an hour, in "
        "epoch milliseconds"
    )
    count: int = Field(description="messages of the page that have it")


class FacetValue(ConsoleValue):
    """How many messages of the page have each topic or tag, or are of each hour."""

    name: FacetName
    counts: list[FacetCount] = Field(description="two or more")
    more: int = Field(description="values that are not listed")


class TimeCountsValue(ConsoleValue):
    """How many messages are of each time; times are epoch milliseconds."""

    begin_ms: int = Field(description="when the first bar begins")
    step_ms: int = Field(description="the length of each bar")
    counts: list[int] = Field(description="the messages of each bar")
    is_of_all: bool = Field(
        default=False,
        description="whether all that the search can find were counted, and not those of the page",
    )


class SearchAnswer(ConsoleValue):
    """The answer to a search: complete, or not and why."""

    query: str
    complete: bool = Field(description="whether everything that can have a match was searched")
    truncated: bool = Field(description="whether there are older messages: see next_cursor")
    messages: list[MessageRow] = Field(description="the newest first")
    next_cursor: str | None = Field(description="continues behind the last message")
    facets: list[FacetValue] = Field(
        description="of the messages of this page, not of those that next_cursor leads to; those "
        "with one value are left out"
    )
    time_counts: TimeCountsValue | None = Field(
        description="of all that match, if is_of_all, else of this page; null if of one time"
    )
    relies_on: list[SentenceText] = Field(
        description="what the answer relies on, where a source was looked at only in part"
    )
    coverage: list[CoverageValue]
    elapsed_ms: int


class IdPart(ConsoleValue):
    """One part of an id."""

    name: str
    value: str
    epoch_ms: int | None = None


class DecodedId(ConsoleValue):
    """An id and what stands in it; ``parts`` is empty if it is of no known form."""

    name: Literal["unique_key", "offset_msg_id"]
    text: str
    parts: list[IdPart]


class BodyValue(ConsoleValue):
    """A body in the form that was asked for."""

    form: Literal["decoded", "text", "json", "hex", "base64"]
    content: str
    is_cut: bool = Field(description="whether only its beginning is here")
    is_json: bool = Field(description="whether the content is JSON")
    format: str = Field(description="what the body is: json, text, protobuf, ...")
    why: SentenceText = Field(description="why it is taken to have this format")
    is_guess: bool
    layers: list[str] = Field(description="the compressions that were undone")
    charset: str | None
    error: str | None = Field(description="why it could not be read as it claims, or decompressed")


class MessageDetail(ConsoleValue):
    """All about one message."""

    message: MessageRow
    properties: dict[str, str]
    system_properties: dict[str, str] = Field(
        description="the properties that RocketMQ itself sets"
    )
    ids: list[DecodedId]
    physical_offset: int
    store_size: int
    store_host: str
    born_host: str
    sys_flag: int
    flag: int
    body_crc: int
    prepared_transaction_offset: int
    due_ms: int | None = Field(
        description="when a broker delivers, or delivered, a message that it keeps for later"
    )
    body: BodyValue


class StoryEventValue(ConsoleValue):
    """Something that happened to a message."""

    time_ms: int | None
    kind: str
    text: SentenceText
    source: SentenceText
    group: str | None
    topic: str | None
    queue_id: int | None
    queue_offset: int | None


class GroupStoryValue(ConsoleValue):
    """What a consumer group did with a message."""

    group: str
    state: str
    rests_on: SentenceText
    source: SentenceText
    since_ms: int | None
    retries: int
    max_retries: int | None
    repeats: list[SentenceText]


class UnlearntValue(ConsoleValue):
    """What could not be learnt."""

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
    """A message, and its story."""

    message: MessageRow
    story: StoryValue


class KeyStoryValue(ConsoleValue):
    """The stories of all messages that a look-up finds."""

    query: str
    summary: SentenceText = Field(description="what became of them, in one sentence")
    complete: bool
    told: list[ToldValue] = Field(description="those with which most is wrong first")
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
    """A topic; None is what could not be learnt."""

    source: str
    name: str
    kind: str
    is_deleted: bool
    is_of_broker: bool = Field(description="a broker made it, under its own name or its cluster's")
    messages: int | None
    waiting: int | None = Field(
        description="messages that are kept for it until they are due: delays and timers"
    )
    waiting_is_exact: bool = Field(description="whether all that wait were counted")
    lite: LiteTopicsValue | None
    size_bytes: int | None
    oldest_ms: int | None
    newest_ms: int | None
    queues: list[QueueValue] | None


class TopicsValue(ConsoleValue):
    """Topics, and whether these are all."""

    complete: bool
    topics: list[TopicValue]
    coverage: list[CoverageValue]


class GroupQueueValue(ConsoleValue):
    """How far a group came in one queue."""

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
    """A consumer group; None is what could not be learnt."""

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
    behind_ms: int | None = Field(
        description="how old what it consumed last is, where it is furthest behind; 0 if nowhere"
    )
    is_left: bool = Field(description="whether messages wait for it, and it has no member")
    has_new_dead_letters: bool = Field(description="whether it has some of the last 24 hours")
    queues: list[GroupQueueValue] | None


class GroupsValue(ConsoleValue):
    """Consumer groups, and whether these are all."""

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
    """What went wrong."""

    code: str = Field(description="a word for programs: bad_input, not_found, incomplete, ...")
    message: SentenceText = Field(description="what, where, and what to do")
    coverage: list[CoverageValue] = Field(default=[], description="of an incomplete answer")


class ErrorAnswer(ConsoleValue):
    """The body of every answer that is an error."""

    error: ErrorValue


def error_answer(code: str, message: str, coverage: Any = ()) -> ErrorAnswer:
    """Return the body of an error."""
    values = [CoverageValue.of(each) for each in coverage]
    return ErrorAnswer(error=ErrorValue(code=code, message=message, coverage=values))
