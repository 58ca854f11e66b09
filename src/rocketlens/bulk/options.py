"""Declares and parses the options of the data source ``rocketmq``.

A value that is not valid raises BadInput, which names the option.

Spark passes any option without a check. An unknown option is an error here: if it were ignored, the
query would have another result.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

from rocketlens.errors import BadInput
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import LMQ_PREFIX, is_system_topic
from rocketlens.model.text.nearest import nearest
from rocketlens.query.topic_choice import is_pattern, parse_topics, unknown_topic
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.former_topics import configured_topics, read_ends
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.rocks import queues_in

_INT64: Final = (-(2**63), 2**63 - 1)
Reader = Literal[
    "batch reads", "streams", "read_batches", "cluster reads", "cluster streams", "writes"
]
"""Readers of a store: ``spark.read``, ``spark.readStream`` and `rocketlens.read_batches`. Readers
of a cluster, which the option ``namesrv`` selects: the first two. Writers: ``write`` and
``writeStream``.
"""
READS: Final[tuple[Reader, ...]] = get_args(Reader)[:5]
"""All but ``writes``."""


class SourceOption(NamedTuple):
    """An option: its name, its default as text, its meaning, and the readers that have it."""

    name: str
    default: str
    meaning: str
    readers: tuple[Reader, ...] = READS


STREAMS: Final[tuple[Reader, ...]] = ("streams",)
_BATCHES: Final[tuple[Reader, ...]] = ("batch reads", "read_batches")
_STORES: Final[tuple[Reader, ...]] = ("batch reads", "streams", "read_batches")
_CLUSTERS: Final[tuple[Reader, ...]] = ("cluster reads", "cluster streams")
_WRITES: Final[tuple[Reader, ...]] = ("writes",)
_CONNECTED: Final[tuple[Reader, ...]] = (*_CLUSTERS, *_WRITES)
_CLUSTER_READS: Final[tuple[Reader, ...]] = ("cluster reads",)
_CLUSTER_STREAMS: Final[tuple[Reader, ...]] = ("cluster streams",)

OPTIONS: Final = (
    SourceOption(
        "store",
        "",
        "The store directory, which all executors must see. load(DIR) sets it, too.",
        _STORES,
    ),
    SourceOption(
        "brokerConf",
        "",
        "The broker.conf that names the store and its log, instead of the directory.",
        _STORES,
    ),
    SourceOption(
        "namesrv",
        "",
        "The name servers of a cluster, ADDR or ADDR;ADDR, instead of a store.",
        _CONNECTED,
    ),
    SourceOption(
        "topic",
        "",
        "Only these topics, separated by commas; * and ? match any characters. subscribe is the "
        "same, as in Spark's Kafka source.",
    ),
    SourceOption(
        "allowUnknownTopic",
        "false",
        "Whether topics that the store does not have are allowed: the log can still have messages "
        "of a deleted topic.",
        _STORES,
    ),
    SourceOption(
        "startingTimestamp",
        "",
        "Only messages stored at or after this time: epoch ms, or ISO 8601, UTC without a zone.",
    ),
    SourceOption(
        "endingTimestamp",
        "",
        "Only messages stored at or before this time, in the same form.",
        (*_STORES, *_CLUSTER_READS),
    ),
    SourceOption(
        "startingOffsets",
        "earliest",
        "earliest: the first message; in streams also latest: messages stored after the first "
        "start of the query; or the first offset of queues as JSON, "
        '{"TOPIC":{"BROKER":{"0":23}}} or without the broker (see Positions of queues); of a store '
        "also a physical offset: messages at or after it. startingOffset is the same.",
    ),
    SourceOption(
        "endingOffsets",
        "latest",
        "latest: the end of the log, or of each queue, when the read is planned; or the offset "
        "after the last one of queues as JSON; of a store also a physical offset: messages before "
        "it. endingOffset is the same. In streams of a store only a physical offset.",
        (*_STORES, *_CLUSTER_READS),
    ),
    SourceOption(
        "minPartitions", "1", "Minimum number of partitions, if there are enough messages."
    ),
    SourceOption("maxPartitionBytes", "134217728", "Maximum bytes of log in a partition.", _STORES),
    SourceOption(
        "maxRecordsPerPartition",
        "100000",
        "Maximum messages of a queue in a partition, named as in Spark's Kafka source.",
        _CLUSTERS,
    ),
    SourceOption(
        "maxBytesPerTrigger", "268435456", "Maximum bytes of log in one micro-batch.", STREAMS
    ),
    SourceOption(
        "maxOffsetsPerTrigger",
        "",
        "Maximum messages of the log, of any topic, in one micro-batch; maxBytesPerTrigger "
        "applies, too.",
        STREAMS,
    ),
    SourceOption(
        "maxOffsetsPerTrigger",
        "1000000",
        "Approximate maximum of messages in one micro-batch, named as in Spark's Kafka source.",
        _CLUSTER_STREAMS,
    ),
    SourceOption(
        "body",
        "true",
        "false: the columns body, body_error, body_text and body_json are null; bytes: only "
        "body_text and body_json are, which is faster.",
    ),
    SourceOption("checkCrc", "true", "Whether records are compared with their checksums."),
    SourceOption(
        "failOnDataLoss",
        "false",
        "Whether the job fails if a planned message is gone or cannot be read, or if only a slave "
        "answered. For a store, false given explicitly also allows messages lost at either end of "
        "the log.",
        (*_BATCHES, *_CLUSTER_READS),
    ),
    SourceOption(
        "failOnDataLoss",
        "true",
        "Whether the query fails if messages were lost before it read them; otherwise it logs the "
        "loss and continues.",
        (*STREAMS, *_CLUSTER_STREAMS),
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
        "messages, or index_entries, from which index files are built.",
        STREAMS,
    ),
    SourceOption("tagIndex", "true", "Whether index_entries has entries for tags, too.", STREAMS),
    SourceOption(
        "topic", "", "The topic of rows that have none in a column of that name.", _WRITES
    ),
    SourceOption(
        "idColumns",
        "",
        "The columns, separated by commas, that identify a row. Its unique key is computed from "
        "them, by default from all columns.",
        _WRITES,
    ),
    SourceOption(
        "writeId",
        "",
        "A text from which unique keys are computed, too: two jobs with the same text give the "
        "same keys. By default each job has its own; a stream has its query and micro-batch.",
        _WRITES,
    ),
    SourceOption(
        "messagesPerSecond", "", "Maximum rows that each task sends in a second.", _WRITES
    ),
    SourceOption("group", "", "The producer group.", _WRITES),
    SourceOption("accessKey", "", "The user, if brokers check access.", _CONNECTED),
    SourceOption(
        "secretKeyFile",
        "",
        "File with the user's secret key, which driver and executors read.",
        _CONNECTED,
    ),
    SourceOption("tls", "false", "Whether to use TLS; the options below imply it.", _CONNECTED),
    SourceOption(
        "ca", "", "File with the authority of the servers' certificates (PEM).", _CONNECTED
    ),
    SourceOption("cert", "", "File with our own certificate, if servers ask for one.", _CONNECTED),
    SourceOption("certKey", "", "File with its private key, if it is another file.", _CONNECTED),
    SourceOption(
        "checkHostname",
        "",
        "Whether certificates must name the host that is connected to; by default without ca.",
        _CONNECTED,
    ),
    SourceOption(
        "insecure",
        "false",
        "Whether any certificate is accepted, as by RocketMQ's own clients.",
        _CONNECTED,
    ),
)
"""Every option, in the order of the docs. An option has several rows if readers differ."""
_SPARKS_OWN: Final = frozenset({"path", "serialization.format"})
_SPARKS_OWN_OF_WRITES: Final = frozenset({"checkpointlocation", "queryname"})
_SAME: Final = {
    "subscribe": "topic",
    "startingoffset": "startingOffsets",
    "endingoffset": "endingOffsets",
}
"""Other names of options that read, in lower case."""
_ELSEWHERE: Final = {
    "topics": "topic",
    "subscribepattern": "topic",
    "assign": "topic",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "maxbytespertrigger": "maxOffsetsPerTrigger",
    "maxrecordsperpartition": "maxPartitionBytes",
    "maxpartitionbytes": "maxRecordsPerPartition",
    "nameserver": "namesrv",
    "nameserveraddress": "namesrv",
    "secretkey": "secretKeyFile",
    "nobody": "body",
}
"""Options of other sources, and options that only some readers have, in lower case; with the option
to give instead if the reader has it.
"""
_WORDS: Final = {"startingOffsets": ("earliest", "latest"), "endingOffsets": ("latest",)}
"""Words for positions: the default, then those only for streams."""
TIMES: Final = {"startingOffsets": "startingTimestamp", "endingOffsets": "endingTimestamp"}


def names_of(reader: Reader) -> tuple[str, ...]:
    return tuple(option.name for option in OPTIONS if reader in option.readers)


class ForeignOption(BadInput):
    """An option that only other readers have."""


def is_cluster(options: Mapping[str, str]) -> bool:
    """Return whether options are for a cluster, even if ``namesrv`` is misspelt."""
    given = {name.lower() for name in options}
    if "namesrv" in given or not given.isdisjoint(("store", "brokerconf", "path")):
        return "namesrv" in given
    names = [option.name for option in OPTIONS]
    return any(_suggestion(name, names) == "namesrv" for name in given)


def _suggestion(given: str, names: Iterable[str]) -> str | None:
    """Return the name that was probably meant by one in lower case."""
    other = _ELSEWHERE.get(given, "")
    return other if other in names else next(iter(nearest(given, names)), None)


def known_options(options: Mapping[str, str], reader: Reader) -> dict[str, str]:
    """Return the options under their canonical names; option names are case-insensitive.

    :raises ForeignOption: if only other readers have an option. The message suggests another one.
    :raises BadInput: if an option is unknown or given twice. The message suggests the nearest name
        and lists all options.
    """
    names = names_of(reader)
    allowed = {name.lower(): name for name in names}
    if reader == "writes":
        allowed |= {name: name for name in _SPARKS_OWN_OF_WRITES}
    else:
        allowed |= {other: name for other, name in _SAME.items() if name in names}
    if reader != "read_batches":
        allowed |= {name: name for name in _SPARKS_OWN}
    elsewhere = {option.name.lower() for option in OPTIONS} | _SAME.keys()
    result: dict[str, str] = {}
    for given, value in options.items():
        lower = given.lower()
        name = allowed.get(lower)
        if name in result:
            raise BadInput(
                f"option {given} is another name of {name}, or was given twice: give one"
            )
        if name is not None:
            result[name] = value
            continue
        is_foreign = lower in elsewhere
        suggestion = _ELSEWHERE.get(lower) if is_foreign else _suggestion(lower, names)
        hint = f"; did you mean {suggestion}?" if suggestion in names else ""
        if is_foreign:
            raise ForeignOption(f"option {given} is not for {reader}{hint}")
        raise BadInput(f"there is no option {given!r}{hint} (options: {', '.join(names)})")
    for name, words in _WORDS.items():
        if name in result:
            _normalize_position(result, name, words, reader)
    return result


def _normalize_position(
    options: dict[str, str], name: str, words: Sequence[str], reader: Reader
) -> None:
    """Check and normalize ``startingOffsets`` or ``endingOffsets``.

    A position in the log, or ``latest`` of a stream, is moved to ``startingOffset`` or
    ``endingOffset``. JSON stays, and defaults are removed.
    """
    value = options.pop(name).strip()
    is_stream = reader in STREAMS + _CLUSTER_STREAMS
    accepted = [*words[: 2 if is_stream else 1]]
    if value.lower() in accepted:
        if value.lower() != words[0]:
            options[name.removesuffix("s")] = value.lower()
        return
    if reader not in _CLUSTERS:
        accepted.append("a physical offset")
        if value.isdecimal():
            options[name.removesuffix("s")] = value
            return
    if not is_stream or name == "startingOffsets":
        accepted.append("positions of queues as JSON")
        if value.startswith("{"):
            options[name] = value
            return
    raise BadInput(
        f"option {name} is {' or '.join(accepted)} for {reader}, not {value[:80]!r}; for a time: "
        f"{TIMES[name]}"
    )


class TopicSelection(NamedTuple):
    """Selects topics by name or pattern."""

    names: frozenset[str]
    patterns: tuple[str, ...]

    def matches(self, topic: str) -> bool:
        return topic in self.names or any(fnmatchcase(topic, one) for one in self.patterns)


def topic_option(options: Mapping[str, str]) -> TopicSelection | None:
    """Parse the option ``topic``; return None without it, for every topic."""
    text = options.get("topic")
    if text is None:
        return None
    parts = parse_topics(text)
    patterns = tuple(filter(is_pattern, parts))
    return TopicSelection(frozenset(parts) - frozenset(patterns), patterns)


def check_topics(store: str, selection: TopicSelection | None) -> None:
    """Check topics against configuration, consume queues and deleted topics.

    A store without any topic names, such as a log alone, passes.

    :raises BadInput: if the store does not have a topic. The message suggests the nearest name.
    """
    if selection is None:
        return
    for name in sorted(selection.names):
        if name.startswith(LMQ_PREFIX):
            raise BadInput(
                f"{name} is a light topic: its messages are those of other topics whose property "
                f"{props.MULTI_DISPATCH} names it"
            )
    layout = StoreLayout.of(Path(store))
    topics = set(queues_in(layout.consume_queue).topics()) | (
        configured_topics(layout) or frozenset()
    )
    if not topics:
        return
    log = CommitLog.of(layout)
    topics |= read_ends(layout, log).keys()
    log.close()
    for name in sorted(selection.names):
        if name not in topics and not is_system_topic(name):
            raise BadInput(
                f"{unknown_topic(name, topics, 'this store')} (for messages of a deleted topic: "
                'option("allowUnknownTopic", "true"))'
            )
    for pattern in selection.patterns:
        if not any(fnmatchcase(topic, pattern) for topic in topics):
            message = f"this store has no topic that matches {pattern!r}"
            raise BadInput(message)


def flag_option(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse an option that is true or false."""
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise BadInput(f"option {name} is true or false, not {text!r}")
    return text.lower() == "true"


BODY_VALUES: Final = ("true", "false", "bytes")


def choice_option(options: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Parse an option with one of some values, of which the first is the default."""
    text = options.get(name, choices[0]).lower()
    if text not in choices:
        raise BadInput(f"option {name} is one of {', '.join(choices)}, not {text!r}")
    return text


def time_option(options: Mapping[str, str], name: str, default: int) -> int:
    """Parse an option that is a time: epoch milliseconds, or ISO 8601, in UTC without a zone.

    A date alone is its first millisecond.
    """
    text = options.get(name, "").strip()
    # Digits are always milliseconds, although ISO 8601 has dates of eight digits.
    if name not in options or text.lstrip("+-").isdigit():
        return number_option(options, name, default, _INT64[0])
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        since = timedelta(days=-1)
    if since < timedelta(0):
        raise BadInput(
            f"option {name} is epoch milliseconds, or a time such as 2026-11-20T10:31:02+08:00, "
            f"not {text[:80]!r}"
        )
    return since // timedelta(milliseconds=1)


def number_option(options: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    """Parse an option that is a whole number."""
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
