"""A search in the address of a page: parsed, checked, and written again.

The search box also takes the words of `rocketlens.query.search_words`.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, Self
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rocketlens import limits
from rocketlens.console.preferences import is_local, is_zone, time_of, time_text, zone_named
from rocketlens.console.search.columns import MAX_CONSOLE_COLUMNS, columns_of
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput
from rocketlens.model.message import Host, MessageExt
from rocketlens.model.message_id import NOT_IN_LOG
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.answer_builder import order_in_time
from rocketlens.query.options import KINDS, Kind
from rocketlens.query.request import FindRequest
from rocketlens.query.search_words import with_broker, words_in

MAX_CONSOLE_SKIPPED: Final = 100_000
"""Messages of one millisecond that a cursor can skip."""
NOTHING_ASKED: Final = Sentence("nothing_asked")
_TEXTS: Final = ("topic", "tag", "where", "grep", "since", "until")
"""The texts of a question besides the search box."""

_Whole = Annotated[int, Field(ge=0, le=limits.MAX_LONG)]
_CURSOR: Final = TypeAdapter(
    tuple[
        _Whole,
        str,
        _Whole,
        Annotated[int, Field(ge=NOT_IN_LOG, le=limits.MAX_LONG)],
        str,
        _Whole,
        _Whole,
        Annotated[int, Field(ge=0, le=MAX_CONSOLE_SKIPPED)],
    ],
    config=ConfigDict(strict=True),
)
"""The fields of a cursor in order, with the host as address and port."""


class Cursor(NamedTuple):
    """The end of a page: the position of its last message."""

    store_timestamp_ms: int
    store_host: Host
    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    seen: int
    """Messages of that millisecond on this and earlier pages."""

    @classmethod
    def after(cls, messages: Sequence[MessageExt], before: "Cursor | None") -> Self:
        """Return the cursor after a page. ``messages`` are oldest first; ``before`` is the page's
        own cursor.
        """
        last = messages[0]
        at = last.store_timestamp_ms
        count = sum(each.store_timestamp_ms == at for each in messages)
        if before is not None and before.store_timestamp_ms == at:
            count += before.seen
        # Without the checksum of the body.
        return cls._make((*order_in_time(last)[:-1], count))

    @classmethod
    def parse(cls, text: str) -> Self:
        """:raises BadInput: if the text is not a cursor."""
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            values = _CURSOR.validate_json(base64.b64decode(padded, b"-_", validate=True))
        except (ValueError, binascii.Error) as error:
            raise BadInput(Sentence("not_our_cursor")) from error
        at, address, port, physical, topic, queue_id, queue_offset, seen = values
        return cls(at, Host(address, port), physical, topic, queue_id, queue_offset, seen)

    def __str__(self) -> str:
        address, port = self.store_host
        values = [self[0], address, port, *self[2:]]
        packed = json.dumps(values, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")

    def is_before(self, message: MessageExt) -> bool:
        """Return whether the message comes on a page after this cursor."""
        return order_in_time(message)[:-1] < self[:-1]


class Question(Struct, frozen=True):
    """The question of a search. Times are as typed."""

    text: str = ""
    topic: str = ""
    kind: Kind = "auto"
    tag: str = ""
    where: str = ""
    grep: str = ""
    since: str = ""
    until: str = ""
    sources: tuple[str, ...] = ()
    max_num: int = limits.DEFAULT_CONSOLE_ROWS
    exhaustive: bool = False
    all_topics: bool = False
    columns: tuple[str, ...] = ()
    """Empty for the default columns."""
    cursor: Cursor | None = None
    zone_name: str = ""
    """The zone of its times; empty if they have no local time."""
    begin: int | None = None
    end: int | None = None

    @classmethod
    def read(cls, zone_name: str = "UTC", **values: Any) -> "Question":
        """Return the question of values by their names in `QuestionValues`.

        :raises BadInput: if a value cannot be used.
        """
        try:
            return QuestionValues(**values).question(zone_name)
        except ValidationError as error:
            raise BadInput(error.errors()[0]["msg"]) from error

    @classmethod
    def as_typed(
        cls, values: Mapping[str, str], sources: Sequence[str] = (), columns: Sequence[str] = ()
    ) -> Self:
        """Return the unchecked values of an address, to fill the form. They cannot be searched."""
        texts: dict[str, Any] = {
            name: values.get(name, "").replace("\0", "")[: limits.MAX_CONSOLE_TEXT]
            for name in ("q", *_TEXTS)
        }
        kind: Any = next((each for each in KINDS if each == values.get("kind")), "auto")
        return cls(
            text=texts.pop("q"),
            kind=kind,
            sources=tuple(sources),
            max_num=_known_max(values.get("max", "")),
            columns=_known_columns(columns),
            exhaustive=values.get("exhaustive") == "true",
            all_topics=values.get("all") == "true",
            **texts,
        )

    def in_zone(self, zone_name: str) -> Self:
        """Return the same question with its times written in another zone."""
        if self.zone_name in ("", zone_name):
            return self
        zone, since, until = zone_named(zone_name), self.since, self.until
        if self.begin is not None and is_local(since):
            since = time_text(self.begin, zone)
        if self.end is not None and is_local(until):
            until = time_text(self.end, zone)
        return replace(self, since=since, until=until, zone_name=zone_name)

    @property
    def is_empty(self) -> bool:
        named = (self.text, self.topic, self.since, self.until, self.tag)
        return not (any(named) or self.has_filter)

    @property
    def has_filter(self) -> bool:
        """True if the question filters by content."""
        return bool(self.where or self.grep)

    @property
    def max_kept(self) -> int:
        """The number of messages to ask sources for: a page, and those that the cursor skips."""
        return self.max_num + (0 if self.cursor is None else self.cursor.seen)

    def request(self, rules: BodyRules | None = None) -> FindRequest:
        """Return the request to sources. ``rules`` decode the bodies for filters.

        :raises BadInput: if the text does not fit the kind, or a filter is not valid.
        :raises PackageMissing: if a pattern needs google-re2, which is not installed.
        """
        end = self.end
        if self.cursor is not None:
            at = self.cursor.store_timestamp_ms
            end = at if end is None else min(at, end)
        return FindRequest.parse(
            self.text or None,
            self.topic or None,
            kind=self.kind if self.text else "auto",
            begin=self.begin,
            end=end,
            tag=self.tag or None,
            max_num=self.max_kept,
            exhaustive=self.exhaustive,
            all_topics=self.all_topics,
            where=self.where or None,
            grep=self.grep or None,
            body_rules=rules,
        )

    def parameters(self, **changes: Any) -> list[tuple[str, str]]:
        """Return the query parameters of the question, after changes of its fields.

        Their order is fixed: saved searches are compared by it.
        """
        changed = replace(self, **changes)
        values = [
            ("q", changed.text),
            ("topic", changed.topic),
            ("kind", "" if changed.kind == "auto" else changed.kind),
            *((name, getattr(changed, name)) for name in _TEXTS[1:]),
            ("zone", changed.zone_name if changed.since or changed.until else ""),
            *(("source", each) for each in changed.sources),
            ("max", "" if changed.max_num == limits.DEFAULT_CONSOLE_ROWS else str(changed.max_num)),
            ("exhaustive", "true" if changed.exhaustive else ""),
            ("all", "true" if changed.all_topics else ""),
            ("columns", ",".join(changed.columns)),
            ("cursor", "" if changed.cursor is None else str(changed.cursor)),
        ]
        return [(name, value) for name, value in values if value]

    def address(self, path: str, **changes: Any) -> str:
        """Return the address of the question, after changes of its fields."""
        query = urlencode(self.parameters(**changes))
        return f"{path}?{query}" if query else path


def _without_zero(text: str) -> str:
    if "\0" in text:
        raise ValueError("a value has a zero character in it")
    return text


_Text = Annotated[str, Field(max_length=limits.MAX_CONSOLE_TEXT), AfterValidator(_without_zero)]


class QuestionValues(BaseModel):
    """The query parameters of a question. Words in the box (``q``) take precedence."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    q: _Text = Field("", description="a key, an id, TOPIC/QUEUE/OFFSET, and name:value")
    topic: _Text = Field("", description="a topic, a pattern, or several separated by commas")
    kind: Kind = Field("auto", description="how to interpret q")
    tag: _Text = Field("", description="a tag expression: A, or A || B")
    where: _Text = Field(
        "",
        description="a filter: SQL92 over properties, topic, tag, key, time and the decoded "
        "body, such as body.$.amount > 100 AND tag = 'paid'",
    )
    grep: _Text = Field("", description="a text or a regular expression (RE2) in the decoded body")
    since: _Text = Field("", description="2h, a day, a time, epoch milliseconds")
    until: _Text = Field("", description="as since; inclusive")
    sources: list[_Text] = Field(
        [],
        alias="source",
        max_length=limits.MAX_CONSOLE_SOURCES,
        description="source names; default: all",
    )
    max_num: int = Field(
        limits.DEFAULT_CONSOLE_ROWS,
        alias="max",
        ge=1,
        le=limits.MAX_CONSOLE_ROWS,
        description="messages on a page",
    )
    exhaustive: bool = Field(default=False, description="read whole queues or logs")
    all_topics: bool = Field(default=False, alias="all", description="also RocketMQ's own topics")
    columns: list[_Text] = Field(
        [],
        max_length=MAX_CONSOLE_COLUMNS,
        description="columns of the list, separated by commas; prop.NAME and body.$.NAME also add "
        "values to messages in JSON",
    )
    cursor: _Text = Field("", description="next_cursor of the previous page")
    zone: str = Field("", max_length=40, description="the zone of times; default: the user's")

    def question(self, zone_name: str) -> Question:
        """Return the question with times in a zone. A link can name the zone of its author.

        :raises BadInput: if a value cannot be used.
        """
        if self.zone and not is_zone(self.zone):
            raise BadInput(Sentence("no_time_zone", name=repr(self.zone)))
        text, words = self.q.strip(), dict[str, str]()
        if self.kind == "auto":
            text, words = words_in(text)
        topic, tag, since, until = (
            words.get(name, getattr(self, name).strip())
            for name in ("topic", "tag", "since", "until")
        )
        zone = zone_named(self.zone or zone_name)
        begin = time_of(since, "since", zone, is_end=False) if since else None
        end = time_of(until, "until", zone, is_end=True) if until else None
        if begin is not None and end is not None and begin > end:
            raise BadInput(Sentence("since_after_until"))
        has_local_time = is_local(since) or is_local(until)
        question = Question(
            text=words.get("key") or words.get("id") or text,
            topic=topic,
            kind="key" if "key" in words else self.kind,
            tag=tag,
            where=with_broker(words.get("broker"), self.where.strip()),
            grep=self.grep,
            since=since,
            until=until,
            sources=(words["source"],) if "source" in words else tuple(filter(None, self.sources)),
            max_num=self.max_num,
            exhaustive=self.exhaustive,
            all_topics=self.all_topics,
            columns=columns_of(self.columns),
            cursor=Cursor.parse(self.cursor) if self.cursor else None,
            zone_name=(self.zone or zone_name) if has_local_time else "",
            begin=begin,
            end=end,
        )
        return question.in_zone(zone_name)


def _known_columns(texts: Sequence[str]) -> tuple[str, ...]:
    try:
        return columns_of(texts)
    except BadInput:
        return ()


def _known_max(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return number if 1 <= number <= limits.MAX_CONSOLE_ROWS else limits.DEFAULT_CONSOLE_ROWS
