"""The options of the data source ``rocketmq``: their names, and how their values are read.

Spark passes on any option without a check. An option that is not understood would be ignored and
the query would answer something else, so it is refused here.
"""

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

from rocketlens.errors import BadInput
from rocketlens.model.rocketmq import is_system_topic
from rocketlens.query.topic_choice import asked_topics, is_pattern, unknown_topic
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read import deleted
from rocketlens.store.read.commitlog import CommitLog
from rocketlens.store.read.consumequeue import ConsumeQueues
from rocketlens.store.read.former_topics import configured_topics

_INT64: Final = (-(2**63), 2**63 - 1)
Reader = Literal["batch reads", "streams", "read_batches"]
"""What reads a store: ``spark.read``, ``spark.readStream``, and the function without Spark."""


class SourceOption(NamedTuple):
    """An option: its default as text, its meaning, and which readers have it with that meaning."""

    name: str
    default: str
    meaning: str
    readers: tuple[Reader, ...] = get_args(Reader)


STREAMS: Final[tuple[Reader, ...]] = ("streams",)
_BATCHES: Final[tuple[Reader, ...]] = ("batch reads", "read_batches")

OPTIONS: Final = (
    SourceOption(
        "store", "", "The store directory, which all executors must see. load(DIR) sets it, too."
    ),
    SourceOption(
        "topic", "", "Only these topics, separated by commas; * and ? match any characters."
    ),
    SourceOption(
        "allowUnknownTopic",
        "false",
        "Whether a topic may be one that the store does not have: messages of a deleted topic may "
        "still be in the log.",
    ),
    SourceOption("startingTimestamp", "", "Only messages stored at or after this time, epoch ms."),
    SourceOption("endingTimestamp", "", "Only messages stored at or before this time, epoch ms."),
    SourceOption("startingOffset", "", "Only messages at or after this physical offset.", _BATCHES),
    SourceOption(
        "startingOffset",
        "earliest",
        "Begin with the first record at or after this physical offset; earliest or latest.",
        STREAMS,
    ),
    SourceOption("endingOffset", "", "Only messages before this physical offset."),
    SourceOption("minPartitions", "1", "At least so many partitions, if the log is large enough."),
    SourceOption("maxPartitionBytes", "134217728", "Bytes of log in a partition, at most."),
    SourceOption(
        "maxBytesPerTrigger", "268435456", "Bytes of log in one micro-batch, at most.", STREAMS
    ),
    SourceOption("body", "true", "false: the columns body and body_error are null."),
    SourceOption("checkCrc", "true", "Whether records are compared with their checksums."),
    SourceOption(
        "failOnDataLoss",
        "false",
        "Whether the job fails when a broker deletes a segment that is still to be read.",
        _BATCHES,
    ),
    SourceOption(
        "failOnDataLoss",
        "true",
        "Whether the query fails when messages were lost before it read them, or logs what was "
        "lost and continues.",
        STREAMS,
    ),
    SourceOption(
        "includeUnsynced",
        "false",
        "Whether messages are returned before they are synced to the disk.",
        STREAMS,
    ),
    SourceOption("table", "messages", "messages, or damage: what cannot be read.", _BATCHES),
    SourceOption(
        "table",
        "messages",
        "messages, or index_entries, from which index files are made.",
        STREAMS,
    ),
    SourceOption("tagIndex", "true", "Whether index_entries has entries for tags, too.", STREAMS),
    SourceOption(
        "filterPushdown",
        "false",
        "Whether the query's own filters prune what is read.",
        ("batch reads",),
    ),
)
"""Every option, in the order of the docs. Two rows have one name where readers differ."""
_SPARKS_OWN: Final = frozenset({"path", "serialization.format"})
_ELSEWHERE: Final = {
    "topics": "topic",
    "subscribe": "topic",
    "subscribepattern": "topic",
    "assign": "topic",
    "startingoffsets": "startingOffset",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsets": "endingOffset",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "maxoffsetspertrigger": "maxBytesPerTrigger",
    "nobody": "body",
}
"""Names that other sources have for the same: lower case, and ours."""


def names_of(reader: Reader) -> tuple[str, ...]:
    """Return the options that a reader has."""
    return tuple(option.name for option in OPTIONS if reader in option.readers)


def known_options(options: Mapping[str, str], reader: Reader) -> dict[str, str]:
    """Return the options by their names as they are written here; theirs are case-insensitive.

    :raises BadInput: naming an option that the reader does not have, what was probably meant, and
        all there are.
    """
    names = names_of(reader)
    known = {name.lower(): name for name in names}
    if reader != "read_batches":
        known |= {name: name for name in _SPARKS_OWN}
    elsewhere = {option.name.lower() for option in OPTIONS}
    result: dict[str, str] = {}
    for given, value in options.items():
        lower = given.lower()
        if lower in known:
            result[known[lower]] = value
            continue
        if lower in elsewhere:
            raise BadInput(f"option {given} is not for {reader}")
        near = difflib.get_close_matches(lower, known, 1)
        meant = _ELSEWHERE.get(lower) or (known[near[0]] if near else None)
        hint = f"; did you mean {meant}?" if meant in names else ""
        message = f"there is no option {given!r}{hint} (options: {', '.join(names)})"
        raise BadInput(message)
    return result


class AskedTopics(NamedTuple):
    """Names of topics and patterns, any of which a topic may match."""

    names: frozenset[str]
    patterns: tuple[str, ...]

    def matches(self, topic: str) -> bool:
        """Return whether a topic is one of them."""
        return topic in self.names or any(fnmatchcase(topic, one) for one in self.patterns)


def topic_option(options: Mapping[str, str]) -> AskedTopics | None:
    """Read the option ``topic``; None when it is not given, which means every topic.

    :raises BadInput: when it names none.
    """
    text = options.get("topic")
    if text is None:
        return None
    parts = asked_topics(text)
    patterns = tuple(filter(is_pattern, parts))
    return AskedTopics(frozenset(parts) - frozenset(patterns), patterns)


def check_topics(store: str, asked: AskedTopics | None) -> None:
    """Refuse topics that neither configuration, consume queues nor deleted topics name.

    A store in which nothing names a topic, such as a log alone, has every topic.

    :raises BadInput: naming the topic, and what was probably meant.
    """
    if asked is None:
        return
    layout = StoreLayout(Path(store))
    known = set(ConsumeQueues(layout.consume_queue).topics()) | (
        configured_topics(layout) or frozenset()
    )
    if not known:
        return
    log = CommitLog(layout.commit_log)
    known |= deleted.read_ends(layout, log).keys()
    log.close()
    for name in sorted(asked.names):
        if name not in known and not is_system_topic(name):
            raise BadInput(
                f"{unknown_topic(name, known, 'this store')} (for messages of a deleted topic: "
                'option("allowUnknownTopic", "true"))'
            )
    for pattern in asked.patterns:
        if not any(fnmatchcase(topic, pattern) for topic in known):
            message = f"this store has no topic that matches {pattern!r}"
            raise BadInput(message)


def flag_option(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read an option that is true or false.

    :raises BadInput: when it is neither.
    """
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise BadInput(f"option {name} is true or false, not {text!r}")
    return text.lower() == "true"


def choice_option(options: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Read an option that has one of some values, the first of which is the default.

    :raises BadInput: when it has another.
    """
    text = options.get(name, choices[0]).lower()
    if text not in choices:
        raise BadInput(f"option {name} is one of {', '.join(choices)}, not {text!r}")
    return text


def number_option(options: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    """Read an option that is a whole number.

    :raises BadInput: when it is not, or is under ``least`` or over 64 bits.
    """
    text = options.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= _INT64[1]:
        raise BadInput(f"option {name} is a whole number from {max(least, 0)} on, not {text!r}")
    return number
