"""Filters pulled messages by tag or by SQL92 expression.

Tags are compared by the hash codes of queue entries; the client compares the texts. An expression
is evaluated on the record of each message, as in RocketMQ without ``enableCalcFilterBitMap``.
Source: ``ExpressionMessageFilter``.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens import limits
from rocketlens.formats.commitlog_record import RecordView
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import ALL_TAGS, SQL92_TYPE, TAG_TYPE
from rocketlens.model.sql92 import InvalidSql92, Sql92, parse_sql92
from rocketlens.model.text.java import decode_utf8, string_hash
from rocketlens.wire.codes import ResponseCode

if TYPE_CHECKING:
    from rocketlens.broker.access.control import MessageReader

PARSE_FAILED: Final = "parse the consumer's subscription failed"

ENTRIES_PER_PULL: Final = 4_000
"""Maximum entries that a pull compares by tag: 5 ms. RocketMQ: 16,000."""
_RECORD_COST: Final = 8
"""Cost of reading the properties of a record, in entries and in nodes of an expression."""
_MIN_RECORDS: Final = 16

_KEPT_CHARACTERS: Final = 1_000
"""Parsed subscriptions of up to this length are cached."""
_KEPT: Final = 1_000


class PullFilter(NamedTuple):
    """A filter for messages. Equal subscriptions make equal filters."""

    tag_codes: frozenset[int] | None = None
    """Hash codes of the tags that pass; None for all."""
    expression: Sql92 | None = None
    reader: "MessageReader | None" = None
    """The messages that access control permits; None for all."""

    @property
    def is_all(self) -> bool:
        return self.tag_codes is None and not self.needs_records

    @property
    def needs_records(self) -> bool:
        """True if entries alone cannot decide."""
        return self.expression is not None or self.reader is not None

    @property
    def entries_at_once(self) -> int:
        if not self.needs_records:
            return ENTRIES_PER_PULL
        nodes = 0 if self.expression is None else self.expression.node_count
        return max(ENTRIES_PER_PULL // (_RECORD_COST + nodes), _MIN_RECORDS)

    def passes_entry(self, entry: QueueEntry) -> bool:
        """Return True if the entry passes; the record can still fail.

        An entry without a tags code passes: the client compares tags, too.
        """
        codes = self.tag_codes
        # The tags code as Java's int.
        return (
            codes is None
            or not entry.has_tags_code
            or (entry.tags_code + 2**31) % 2**32 - 2**31 in codes
        )

    def passes_record(self, content: memoryview) -> bool:
        """Return True if a message passes, of which the entry does."""
        if self.reader is not None and not self.reader.may_read(content):
            return False
        if self.expression is None:
            return True
        properties = props.parse(decode_utf8(RecordView(content).properties))
        return self.expression.passes(properties)


class PullRefused(Exception):
    """A pull is not permitted, or its subscription is invalid: code and remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code: Final = code
        self.remark: Final = remark


ALL_MESSAGES: Final = PullFilter()


def parse_filter(kind: str | None, expression: str | None, *, with_sql92: bool) -> PullFilter:
    """:raises PullRefused: if the subscription is invalid, or of an unknown or disabled type."""
    if kind in (None, "", TAG_TYPE):
        if not expression or expression == ALL_TAGS:
            return ALL_MESSAGES
        parse, kept = _parse_tags, _kept_tags
    else:
        if kind != SQL92_TYPE or not with_sql92:
            remark = f"The broker does not support consumer to filter message by {kind[:60]}"
            raise PullRefused(ResponseCode.SYSTEM_ERROR, remark)
        parse, kept = _parse_expression, _kept_expression
        expression = expression or ""
    if len(expression) > limits.MAX_SUBSCRIPTION_CHARACTERS:
        remark = f"the consumer's subscription is longer than {limits.MAX_SUBSCRIPTION_CHARACTERS}"
        raise PullRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{remark} characters")
    return (parse if len(expression) > _KEPT_CHARACTERS else kept)(expression)


def _parse_tags(expression: str) -> PullFilter:
    if expression.strip() == ALL_TAGS:
        return ALL_MESSAGES
    tags = [tag.strip() for tag in expression.split("||") if tag.strip()]
    if not tags:
        raise PullRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, PARSE_FAILED)
    return PullFilter(frozenset(map(string_hash, tags)))


def _parse_expression(expression: str) -> PullFilter:
    try:
        return PullFilter(expression=parse_sql92(expression))
    except InvalidSql92 as error:
        code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
        raise PullRefused(code, f"{PARSE_FAILED}: {error}") from error


_kept_tags = lru_cache(_KEPT)(_parse_tags)
_kept_expression = lru_cache(_KEPT)(_parse_expression)
