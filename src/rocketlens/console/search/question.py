"""A search as an address of the console has it: read, checked, and written again.

The box takes the words of `rocketlens.query.search_words` beside a text.

A cursor is where the page before ended: the last message's time and identity, and how many of its
millisecond were shown.
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
"""Messages of one millisecond that a cursor of the console can have passed."""
NOTHING_ASKED: Final = Sentence("nothing_asked")

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
"""The fields of a cursor in their order, the address and the port of the host apart."""


class Cursor(NamedTuple):
    """The position where a page ended."""

    store_timestamp_ms: int
    store_host: Host
    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    seen: int
    """Messages of that millisecond that earlier pages have."""

    @classmethod
    def after(cls, messages: Sequence[MessageExt], before: "Cursor | None") -> Self:
        """Return the cursor behind a page, whose messages are in order of time; the oldest is
        first. ``before`` is the cursor that the page was asked with.
        """
        last = messages[0]
        at = last.store_timestamp_ms
        count = sum(each.store_timestamp_ms == at for each in messages)
        if before is not None and before.store_timestamp_ms == at:
            count += before.seen
        # All but the checksum of the body.
        return cls._make((*order_in_time(last)[:-1], count))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the cursor that `text` was made of.

        :raises BadInput: if it is not one.
        """
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
        """Return whether a page behind this cursor has the message."""
        return order_in_time(message)[:-1] < self[:-1]


class Question(Struct, frozen=True):
    """The question of an address; times as they were typed."""

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
    """Of the list of messages; none: the usual ones."""
    cursor: Cursor | None = None
    zone_name: str = ""
    """The zone of its times; empty if they do not need one."""
    begin: int | None = None
    end: int | None = None

    @classmethod
    def read(cls, zone_name: str = "UTC", **values: Any) -> Self:
        """Return the question of values, by their names in `QuestionValues`.

        :raises BadInput: if one cannot be used.
        """
        try:
            return cls.of(QuestionValues(**values), zone_name)
        except ValidationError as error:
            raise BadInput(error.errors()[0]["msg"]) from error

    @classmethod
    def of(cls, values: "QuestionValues", zone_name: str) -> Self:
        """Return the question of values whose times are of a zone; errors as `read`."""
        text, named = values.q.strip(), dict[str, str]()
        if values.kind == "auto":
            text, named = words_in(text)
        question = cls(
            named.get("key") or named.get("id") or text,
            named.get("topic", values.topic.strip()),
            "key" if "key" in named else values.kind,
            named.get("tag", values.tag.strip()),
            with_broker(named.get("broker"), values.where.strip()),
            values.grep,
            named.get("since", values.since.strip()),
            named.get("until", values.until.strip()),
            (named["source"],) if "source" in named else tuple(filter(None, values.sources)),
            values.max_num,
            values.exhaustive,
            values.all_topics,
            columns_of(values.columns),
            Cursor.parse(values.cursor) if values.cursor else None,
        )
        return question._with_times(zone_name)

    @classmethod
    def as_typed(
        cls, values: Mapping[str, str], sources: Sequence[str] = (), columns: Sequence[str] = ()
    ) -> Self:
        """Return what an address has in its fields, to be shown in them again: nothing of it is
        checked, so it cannot be asked.
        """

        def typed(name: str) -> str:
            return values.get(name, "").replace("\0", "")[: limits.MAX_CONSOLE_TEXT]

        kind: Any = next((each for each in KINDS if each == values.get("kind")), "auto")
        return cls(
            typed("q"),
            typed("topic"),
            kind,
            typed("tag"),
            typed("where"),
            typed("grep"),
            typed("since"),
            typed("until"),
            tuple(sources),
            max_num=_known_max(values.get("max", "")),
            columns=_known_columns(columns),
            exhaustive=values.get("exhaustive") == "true",
            all_topics=values.get("all") == "true",
        )

    def _with_times(self, zone_name: str) -> Self:
        zone = zone_named(zone_name)
        begin = time_of(self.since, "since", zone, is_end=False) if self.since else None
        end = time_of(self.until, "until", zone, is_end=True) if self.until else None
        if begin is not None and end is not None and begin > end:
            raise BadInput(Sentence("since_after_until"))
        is_of_zone = is_local(self.since) or is_local(self.until)
        return replace(self, begin=begin, end=end, zone_name=zone_name if is_of_zone else "")

    def in_zone(self, zone_name: str) -> Self:
        """Return the same question with its times as they are written in another zone."""
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
        """Whether nothing is asked for."""
        named = (self.text, self.topic, self.since, self.until, self.tag)
        return not (any(named) or self.has_filter)

    @property
    def has_filter(self) -> bool:
        """Whether messages are chosen by their content."""
        return bool(self.where or self.grep)

    @property
    def max_kept(self) -> int:
        """Messages that sources are asked for: those that earlier pages have of the cursor's
        millisecond, and a page.
        """
        return self.max_num + (0 if self.cursor is None else self.cursor.seen)

    def request(self, rules: BodyRules | None = None) -> FindRequest:
        """Return what sources are asked; ``rules`` decode the bodies that a filter looks at.

        :raises BadInput: if the text cannot be what the kind says, or a filter is not well-formed.
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
        """Return the values of an address that asks the same, or with changes."""
        changed = replace(self, **changes)
        values = [
            ("q", changed.text),
            ("topic", changed.topic),
            ("kind", "" if changed.kind == "auto" else changed.kind),
            ("tag", changed.tag),
            ("where", changed.where),
            ("grep", changed.grep),
            ("since", changed.since),
            ("until", changed.until),
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
        """Return the address of a page that asks the same, or with changes."""
        query = urlencode(self.parameters(**changes))
        return f"{path}?{query}" if query else path


def _without_zero(text: str) -> str:
    if "\0" in text:
        raise ValueError("a value has a zero character in it")
    return text


_Text = Annotated[str, Field(max_length=limits.MAX_CONSOLE_TEXT), AfterValidator(_without_zero)]


class QuestionValues(BaseModel):
    """The values of a question in an address; words of the box (``q``) count more."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    q: _Text = Field("", description="a key, an id, TOPIC/QUEUE/OFFSET, and name:value")
    topic: _Text = Field("", description="a topic, a pattern, or several by commas")
    kind: Kind = Field("auto", description="how q is to be read")
    tag: _Text = Field("", description="a tag expression: A, or A || B")
    where: _Text = Field(
        "",
        description="a filter: SQL92 over properties, topic, tag, key, time and the decoded "
        "body, such as body.$.amount > 100 AND tag = 'paid'",
    )
    grep: _Text = Field("", description="a text or a regular expression (RE2) in the decoded body")
    since: _Text = Field("", description="2h, a day, a time, epoch milliseconds")
    until: _Text = Field("", description="as since; the end is included")
    sources: list[_Text] = Field(
        [],
        alias="source",
        max_length=limits.MAX_CONSOLE_SOURCES,
        description="sources by name; or all",
    )
    max_num: int = Field(
        limits.DEFAULT_CONSOLE_ROWS,
        alias="max",
        ge=1,
        le=limits.MAX_CONSOLE_ROWS,
        description="messages on a page",
    )
    exhaustive: bool = Field(default=False, description="read whole queues or logs")
    all_topics: bool = Field(
        default=False, alias="all", description="also search RocketMQ's own topics"
    )
    columns: list[_Text] = Field(
        [],
        max_length=MAX_CONSOLE_COLUMNS,
        description="columns of the list, by commas; of messages as JSON their values: "
        "prop.NAME, body.$.NAME",
    )
    cursor: _Text = Field("", description="next_cursor of the page before")
    zone: str = Field("", max_length=40, description="the zone of times; or the reader's")

    def question(self, zone_name: str) -> Question:
        """Return the question of a reader in a zone; a link of another reader has that one's zone.

        :raises BadInput: if a value cannot be used.
        """
        if self.zone and not is_zone(self.zone):
            raise BadInput(Sentence("no_time_zone", name=repr(self.zone)))
        return Question.of(self, self.zone or zone_name).in_zone(zone_name)


def _known_columns(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that texts name; none if one of them is wrong."""
    try:
        return columns_of(texts)
    except BadInput:
        return ()


def _known_max(text: str) -> int:
    """Return the messages on a page that a text asks for; the usual number if it is wrong."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return number if 1 <= number <= limits.MAX_CONSOLE_ROWS else limits.DEFAULT_CONSOLE_ROWS
