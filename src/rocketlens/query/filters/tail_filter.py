"""Which messages ``tail`` shows: by tags, by an SQL92 expression, by key."""

from typing import TYPE_CHECKING

from rocketlens.errors import BadInput
from rocketlens.model.arguments import check_text
from rocketlens.model.sql.sql92 import parse_sql92
from rocketlens.query.lookup.verify import MessageFilter
from rocketlens.query.request import check_key, parse_tags

if TYPE_CHECKING:
    from rocketlens.query.filters.content_filter import ContentFilter


def tail_filter(
    topic: str,
    *,
    tags: str | None = None,
    sql: str | None = None,
    key: str | None = None,
    begin: int | None = None,
    content: "ContentFilter | None" = None,
) -> MessageFilter:
    """Return the filter of one topic; all conditions given must hold.

    ``tags`` is one tag or several, such as ``"TagA || TagB"``, ``"*"`` for all. ``key`` is one of
    the message's keys, or its unique key. ``begin`` is a store time in epoch milliseconds.

    :raises BadInput: if the tags name no tag, the expression is not well-formed (InvalidSql92), or
        the key is empty or too long.
    """
    if key is not None:
        check_key(check_text(key, "key"))
    return MessageFilter(
        topic=topic,
        tags=None if tags is None else _tags_of(check_text(tags, "tags")),
        expression=None if sql is None else parse_sql92(check_text(sql, "sql")),
        key=key,
        unique_key=key,
        begin=begin,
        content=content,
    )


def _tags_of(text: str) -> frozenset[str] | None:
    tags = parse_tags(text)
    if tags is None or tags - {""}:
        return tags and tags - {""}
    raise BadInput(f"{text[:80]!r} names no tag: give tags such as 'TagA || TagB'")
