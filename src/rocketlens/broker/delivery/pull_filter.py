"""Which messages of a queue a pull gets: by tags, or by an expression over properties.

Tags are compared by their hash codes, as the queue has them; the client compares the texts. An
expression is evaluated for each message, by its record. Brokers of RocketMQ that keep no bit maps
(``enableCalcFilterBitMap``, off) do the same. Source: ``ExpressionMessageFilter``.
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
"""Entries that one pull reads at most when their tags do not match: 5 ms. RocketMQ: 16,000."""
_RECORD_COST: Final = 8
"""Cost of reading the properties of a record, in entries and in nodes of an expression."""
_MIN_RECORDS: Final = 16

_KEPT_CHARACTERS: Final = 1_000
"""Subscriptions of at most so many characters are parsed once for many pulls."""
_KEPT: Final = 1_000


class PullFilter(NamedTuple):
    """Which messages pass; equal for equal subscriptions."""

    tag_codes: frozenset[int] | None = None
    """Hash codes of the tags that pass; None for all."""
    expression: Sql92 | None = None
    reader: "MessageReader | None" = None
    """Which messages access control lets it have; None for all."""

    @property
    def is_all(self) -> bool:
        """Return whether every message passes."""
        return self.tag_codes is None and not self.needs_records

    @property
    def needs_records(self) -> bool:
        """Return whether entries do not tell all that decides."""
        return self.expression is not None or self.reader is not None

    @property
    def entries_at_once(self) -> int:
        """Return how many entries are looked at in one piece of work."""
        if not self.needs_records:
            return ENTRIES_PER_PULL
        nodes = 0 if self.expression is None else self.expression.node_count
        return max(ENTRIES_PER_PULL // (_RECORD_COST + nodes), _MIN_RECORDS)

    def passes_entry(self, entry: QueueEntry) -> bool:
        """Return whether a message may pass, by its entry.

        Without its tags code it passes: the client compares tags, too.
        """
        codes = self.tag_codes
        # The tags code as Java's int.
        return (
            codes is None
            or not entry.has_tags_code
            or (entry.tags_code + 2**31) % 2**32 - 2**31 in codes
        )

    def passes_record(self, content: memoryview) -> bool:
        """Return whether a message passes whose entry does, by its record."""
        if self.reader is not None and not self.reader.may_read(content):
            return False
        if self.expression is None:
            return True
        properties = props.parse(decode_utf8(RecordView(content).properties))
        return self.expression.passes(properties)


class PullRefused(Exception):
    """A pull that is not allowed, or whose subscription cannot be used: code and remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code: Final = code
        self.remark: Final = remark


ALL_MESSAGES: Final = PullFilter()


def parse_filter(kind: str | None, expression: str | None, *, with_sql92: bool) -> PullFilter:
    """Parse a subscription; ``with_sql92``: whether expressions over properties are allowed.

    :raises PullRefused: when it is not well-formed, or of a kind that is not known or not allowed.
    """
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
