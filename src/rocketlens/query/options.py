"""The keywords of `find`, `scan`, `tail` and `story`, each described once.

Functions of stores, clusters, several sources and blocking clients declare
``**options: Unpack[FindOptions]`` and pass them to a parser, which has the defaults and checks:
``parse``, ``parse_scan`` and ``tail_filter`` of `rocketlens.query.request`.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypedDict, TypeVar, get_args

from rocketlens.model.text.nearest import suggestion

if TYPE_CHECKING:
    from datetime import datetime
    from os import PathLike

    from rocketlens.decode.rules import BodyRules

P = ParamSpec("P")
T = TypeVar("T")
Kind = Literal["auto", "key", "unique-key", "offset-id", "queue-offset"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "consumer_group": ("group",),
    "count": ("max_num", "newest"),
    "filter": ("where",),
    "from_": ("begin",),
    "limit": ("max_num", "newest"),
    "max": ("max_num", "newest"),
    "message_model": ("broadcasting",),
    "model": ("broadcasting",),
    "namesrv_addr": ("name_servers",),
    "newest": ("max_num",),
    "producer_group": ("group",),
    "query": ("where",),
    "since": ("begin",),
    "start": ("begin",),
    "stop": ("end",),
    "to": ("end",),
    "topics": ("topic",),
    "until": ("end",),
}
"""Keywords that users of the command line or of other libraries try; the first known one counts."""
_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY


class ContentOptions(TypedDict, total=False):
    """Conditions on the content of messages.

    ``where``: a filter in RocketMQ's SQL92 dialect over properties, topic, tag, keys, times and the
    decoded body: ``body.$.amount > 100 AND tag = 'paid'`` (`rocketlens.query.filters.where`).
    ``grep``: a text or regular expression (RE2) that the decoded body contains, or the parts in
    ``grep_in``: ``body``, ``keys``, ``properties``.
    ``body_rules``: how to decode bodies: the path of a TOML file, or `BodyRules`. If bodies cannot
    be decoded, the answer is incomplete, and its coverage has their number.
    """

    where: str | None
    grep: str | None
    grep_in: Collection[str]
    body_rules: "BodyRules | PathLike[str] | str | None"


class RangeOptions(ContentOptions, total=False):
    """Conditions on store time and content.

    ``begin``, ``end``: store times, both included: epoch milliseconds, datetimes (local time
    without a zone), or texts such as ``2h``, ``yesterday`` or ``2026-11-20``.
    ``all_topics``: in a search without a topic, include RocketMQ's own topics, such as traces. By
    default their messages are only counted in the coverage. Searches by id or position always
    include them.
    """

    begin: "int | datetime | str | None"
    end: "int | datetime | str | None"
    all_topics: bool


class FindOptions(RangeOptions, total=False):
    """The keywords of ``find``.

    ``kind``: the kind of the text: ``key``, ``unique-key``, ``offset-id``, ``queue-offset``, or
    ``auto``, which tries all possible kinds.
    ``max_num``: the number of messages to return, the newest ones; None for all.
    ``exhaustive``: read everything that could contain a message, instead of relying on rising store
    times and complete consume queues.
    ``only_delivered``: leave out messages that wait for the topics: delayed, timed and half
    messages.
    """

    kind: Kind
    max_num: int | None
    exhaustive: bool
    only_delivered: bool


class ScanOptions(RangeOptions, total=False):
    """The keywords of ``scan``.

    ``tag``: a tag expression: ``TagA``, ``TagA || TagB``, or ``*`` for all.
    """

    tag: str | None


class TailOptions(ContentOptions, total=False):
    """The keywords of ``tail``; all given conditions must hold.

    ``begin``: the earliest store time, as in `RangeOptions`.
    ``tags``: a tag expression such as ``"TagA || TagB"``, or ``"*"`` for all.
    ``sql``: an SQL92 expression over properties, even if the broker does not allow them.
    ``key``: a key or unique key.
    """

    begin: "int | datetime | str | None"
    tags: str | None
    sql: str | None
    key: str | None


class StoryOptions(TypedDict, total=False):
    """The keywords of ``story``.

    ``kind``: the kind of the text, as in `FindOptions`.
    ``trace_topic``: the topic with the clients' traces, if it is not RocketMQ's default.
    ``group``: only this consumer group.
    ``one``: only the first message, if several match.
    """

    kind: Kind
    trace_topic: str | None
    group: str | None
    one: bool


def check_keywords(function: str, passed: Iterable[str], known: Collection[str]) -> None:
    """Check the names of keyword arguments.

    :raises TypeError: if a name is unknown; suggests a known one.
    """
    for name in passed:
        if name not in known:
            synonyms = [each for each in _SYNONYMS.get(name, ()) if each in known]
            meant = f"; did you mean {synonyms[0]}?" if synonyms else suggestion(name, known)
            raise TypeError(f"{function}() has no argument {name!r}{meant}")


def refuses_others(init: Callable[P, None]) -> Callable[P, None]:
    """Return an ``__init__`` that raises a TypeError with a suggestion for an unknown argument."""
    names = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked(*arguments: P.args, **passed: P.kwargs) -> None:
        check_keywords(type(arguments[0]).__name__, passed, names)
        init(*arguments, **passed)

    return checked


def takes(options: type, reader: Callable[..., Any]) -> Callable[[T], T]:
    """Return a decorator for a function that passes its ``**options`` on to ``reader``.

    ``help()`` then shows each keyword of ``options`` with its default in ``reader``. Unknown
    keywords raise a TypeError with a suggestion.
    """
    read = inspect.signature(reader).parameters
    keywords = [read[name].replace(kind=_KEYWORD) for name in options.__annotations__]

    def decorate(function: T) -> T:
        own: Any = function
        signature = inspect.signature(own)
        given = [
            each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD
        ]
        parameters = [*given, *sorted(keywords, key=lambda each: list(read).index(each.name))]
        names = frozenset(each.name for each in parameters)

        @functools.wraps(own)
        def checked(*arguments: Any, **passed: Any) -> Any:
            check_keywords(own.__name__, passed, names)
            return own(*arguments, **passed)

        @functools.wraps(own)
        async def checked_async(*arguments: Any, **passed: Any) -> Any:
            return await checked(*arguments, **passed)

        result: Any = checked_async if inspect.iscoroutinefunction(own) else checked
        result.__signature__ = signature.replace(parameters=parameters)
        typed: T = result
        return typed

    return decorate
