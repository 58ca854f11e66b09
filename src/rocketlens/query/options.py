"""The keywords of `find`, `scan`, `tail` and `story`: each with its meaning, once.

Every function that takes them, of a store, a cluster, several sources or a blocking client,
declares ``**options: Unpack[FindOptions]`` and passes them on to what reads them, which has the
defaults and the checks:

==================  ===========================================================================
keywords            read by
==================  ===========================================================================
`FindOptions`       `rocketlens.query.request.FindRequest.parse`
`ScanOptions`       `rocketlens.query.request.FindRequest.parse_scan`
`TailOptions`       `rocketlens.query.request.tail_filter`
`StoryOptions`      `rocketlens.query.request.StoryRequest.parse`
==================  ===========================================================================
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
"""What the command line, and other libraries, call a keyword; the first that a function has."""
_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY


class ContentOptions(TypedDict, total=False):
    """Options that choose messages by what they contain.

    ``where``: a filter in RocketMQ's SQL92 over properties, topic, tag, keys, times and the decoded
    body: ``body.$.amount > 100 AND tag = 'paid'`` (`rocketlens.query.filters.where`).
    ``grep``: a text or a regular expression (RE2) that the decoded text of the body has, or what
    ``grep_in`` names: ``body``, ``keys``, ``properties``.
    ``body_rules``: how bodies are decoded: the path of a TOML file, or `BodyRules`. Messages whose
    bodies could not be looked at make the answer incomplete, and its coverage says how many.
    """

    where: str | None
    grep: str | None
    grep_in: Collection[str]
    body_rules: "BodyRules | PathLike[str] | str | None"


class RangeOptions(ContentOptions, total=False):
    """Which messages, by store time, content, and whether they are RocketMQ's own.

    ``begin``, ``end``: store times, both included, as epoch milliseconds, datetimes (local time
    without a zone), or words of the commands: ``2h``, ``yesterday``, ``2026-11-20``.
    ``all_topics``: without a topic, look in RocketMQ's own topics, too, traces above all; otherwise
    their messages are left out and counted in the coverage. Ids and positions find them in any
    case.
    """

    begin: "int | datetime | str | None"
    end: "int | datetime | str | None"
    all_topics: bool


class FindOptions(RangeOptions, total=False):
    """The keywords of ``find`` beside a text and topics.

    ``kind``: what the text is: ``key``, ``unique-key``, ``offset-id``, ``queue-offset``, or
    ``auto``, which tries all that it can be.
    ``max_num``: return the newest messages, so many; None is all.
    ``exhaustive``: read all that could hold a message, instead of relying on the order of store
    times, or on consume queues that lack nothing.
    ``only_delivered``: leave out messages that wait for the topics: delayed ones, timers, halves of
    transactions.
    """

    kind: Kind
    max_num: int | None
    exhaustive: bool
    only_delivered: bool


class ScanOptions(RangeOptions, total=False):
    """The keywords of ``scan`` beside topics.

    ``tag``: a tag expression: ``TagA``, ``TagA || TagB``, or ``*`` for all.
    """

    tag: str | None


class TailOptions(ContentOptions, total=False):
    """The keywords of ``tail`` beside a topic and a number; all conditions given must hold.

    ``begin``: a store time as `RangeOptions` has it; older messages are left out.
    ``tags``: one tag or several, such as ``"TagA || TagB"``, ``"*"`` for all.
    ``sql``: an SQL92 expression over properties, which need not be one that the broker allows.
    ``key``: one of the message's keys, or its unique key.
    """

    begin: "int | datetime | str | None"
    tags: str | None
    sql: str | None
    key: str | None


class StoryOptions(TypedDict, total=False):
    """The keywords of ``story`` beside a text and topics.

    ``kind``: what the text is, as `FindOptions` has it.
    ``trace_topic``: where clients write their traces, if it is not RocketMQ's own topic.
    ``group``: tell of this consumer group alone.
    ``one``: of several messages that match, tell the story of the first alone.
    """

    kind: Kind
    trace_topic: str | None
    group: str | None
    one: bool


def check_keywords(function: str, passed: Iterable[str], known: Collection[str]) -> None:
    """Check that a function has the keywords that were passed.

    :raises TypeError: with the first that it does not have, and the one that it perhaps stands for.
    """
    for name in passed:
        if name not in known:
            synonyms = [each for each in _SYNONYMS.get(name, ()) if each in known]
            meant = f"; did you mean {synonyms[0]}?" if synonyms else suggestion(name, known)
            raise TypeError(f"{function}() has no argument {name!r}{meant}")


def refuses_others(init: Callable[P, None]) -> Callable[P, None]:
    """Return an ``__init__`` that refuses an argument it does not have, with the one meant."""
    names = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked(*arguments: P.args, **passed: P.kwargs) -> None:
        check_keywords(type(arguments[0]).__name__, passed, names)
        init(*arguments, **passed)

    return checked


def takes(options: type, reader: Callable[..., Any]) -> Callable[[T], T]:
    """Return a decorator for a function that passes its ``**options`` on to ``reader``.

    ``help()`` shows each keyword of ``options``, one of the classes above, with the default that
    ``reader`` has. Another keyword is refused, with the name that was probably meant.
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
