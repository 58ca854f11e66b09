"""Where the files of a store are: RocketMQ's own, and ours beside them.

Ours are in the directory ``rocketlens``, which RocketMQ does not look into. It opens every file
that it finds in ``commitlog``, ``consumequeue`` and ``index``, so nothing else may ever be there,
not even for a moment.

======================  =========================================================================
``rocketlens/``         content
======================  =========================================================================
``state.json``          how far the consume queues are synced, and how long each of them is
``synced``              how far the log is synced, written in place after each sync
``index.json``          how far the index files are synced: the safe offset, and their headers
``index/``              index files being built while ``index/`` of the store has those of another
``index.lock``          held by the one builder of index files
``log_path``            the directory of the log, if that is not ``commitlog`` in the store
``deleted.json``        topics that were deleted while the log still has messages of them
``name_taken.json``     another broker that registered under this broker's name, if any
``aside/``              bytes that recovery found damaged, or cut off the log or a queue
``scratch/``            files being made, and consume queues being removed
``tap.json``            of which broker's store this is a copy, if it is one
======================  =========================================================================

All of ours may be deleted while no broker runs: the next start then reads the whole log.

A ``broker.conf`` of RocketMQ names these paths of a store:

=============================  =====================================================================
key                            names
=============================  =====================================================================
``storePathRootDir``           the store; ``~/store`` if it is missing
``storePathCommitLog``         the directory of its log, or several with commas between them;
                               ``commitlog`` in the store if it is missing
``readOnlyCommitLogStorePaths``  directories with older files of the log, with commas between them
``enableDLegerCommitLog``      ``true``: the log is ``dledger-ID/data``, and above what is older
``dLegerSelfId``               that ID
``storePathDLedgerCommitLog``  where ``dledger-ID`` is, if not in the store
``tieredStoreFilePath``        where the local provider of RocketMQ 5 has tiered storage
``brokerClusterName``          the directory in there is named by it; ``DefaultCluster`` if missing
``brokerConfigPaths``          the files of the brokers in a container, with colons between them:
                               each has a store
=============================  =====================================================================

Everything else is in the store. Of a key that stands there twice the last value counts, as in
RocketMQ. Source: ``MessageStoreConfig``, ``MultiPathMappedFileQueue``, ``DLedgerCommitLog``,
``PosixFileSegment``, ``BrokerContainerStartup``.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.errors import NotAStore
from rocketlens.formats import java_properties
from rocketlens.store import fs

BATCH_QUEUES: Final = "batchconsumequeue"
QUEUE_LOG: Final = "COMMIT_LOG"
"""The log of one queue in tiered storage, in BROKER/TOPIC/QUEUE."""
COMPACTED: Final = "compactionLog"
"""TOPIC/QUEUE/files of the logs of compacted topics."""
INDEX_LOCK: Final = "index.lock"
_NAME_FORMAT: Final = "%Y%m%d%H%M%S"
_LATEST_NAMED_MS: Final = 253_370_764_800_000
"""Later times than the year 9999 are damage; the file is named as if it were then."""
_SEPARATOR: Final = ","
_BROKERS_OF_CONTAINER: Final = "brokerConfigPaths"
_SEPARATOR_OF_BROKERS: Final = ":"


def index_file_name(timestamp_ms: int, before: str) -> str:
    """Return the name of an index file from a time in the local zone, later than the name
    ``before``.
    """
    seconds, milliseconds = divmod(min(max(timestamp_ms, 0), _LATEST_NAMED_MS), 1000)
    moment = datetime.fromtimestamp(seconds, UTC).astimezone().replace(tzinfo=None)
    name = f"{moment:{_NAME_FORMAT}}{milliseconds:03}"
    if name > before:
        return name
    before_moment = datetime.strptime(before[:-3], _NAME_FORMAT)  # noqa: DTZ007 - has no zone
    moment = before_moment + timedelta(milliseconds=int(before[-3:]) + 1)
    return f"{moment:{_NAME_FORMAT}}{moment.microsecond // 1000:03}"


class StoreLayout:
    """The paths of one store.

    ``elsewhere``: the directories of its log, where those are not ``commitlog`` in ``root``.
    ``tiered``: where its ``broker.conf`` says that tiered storage is.
    """

    def __init__(
        self, root: Path, elsewhere: tuple[Path, ...] = (), tiered: Path | None = None
    ) -> None:
        self.root: Final = root
        self.elsewhere: Final = elsewhere
        self.tiered: Final = tiered
        self.commit_logs: Final = elsewhere or (root / "commitlog",)
        """The directories of segments; they are written in the first."""
        self.commit_log: Final = self.commit_logs[0]
        self.is_log_of_queue: Final = elsewhere == (root,)
        """Whether it has nothing but the log of one queue."""
        self.disks: Final = (root, *elsewhere)
        """A directory on each disk that the store may be on."""
        self.consume_queue: Final = root / "consumequeue"
        """TOPIC/QUEUE/files."""
        self.batch_queues: Final = root / BATCH_QUEUES
        """TOPIC/QUEUE/files of RocketMQ 5's topics whose records are batches of messages."""
        self.index: Final = root / "index"
        self.config: Final = root / "config"
        """Tables of topics, groups and offsets."""
        self.compacted: Final = root / "compaction" / COMPACTED
        """The logs of topics of which RocketMQ 5 keeps the last message of each key."""
        self.tiers: Final = self.config / "tieredStoreMetadata.json"
        """Names the files that RocketMQ 5 has in tiered storage."""
        self.checkpoint: Final = root / "checkpoint"
        self.abort: Final = root / "abort"
        """Exists while a broker runs, and after one that did not stop cleanly."""
        self.own: Final = root / "rocketlens"
        """RocketLens's own files: see the table of this module."""
        self.log_path: Final = self.own / "log_path"
        self.state: Final = self.own / "state.json"
        self.synced: Final = self.own / "synced"
        self.index_state: Final = self.own / "index.json"
        self.new_index: Final = self.own / "index"
        self.deleted: Final = self.own / "deleted.json"
        self.name_taken: Final = self.own / "name_taken.json"
        self.tap: Final = self.own / "tap.json"
        self.aside: Final = self.own / "aside"
        self.scratch: Final = self.own / "scratch"

    def __repr__(self) -> str:
        """Return what it was made of."""
        return f"StoreLayout({self.root!r}, {self.elsewhere!r}, {self.tiered!r})"

    def __eq__(self, other: object) -> bool:
        """Return whether the other was made of the same paths."""
        return isinstance(other, StoreLayout) and repr(self) == repr(other)

    def __hash__(self) -> int:
        """Return the hash of what it was made of."""
        return hash(repr(self))

    @classmethod
    def of(cls, path: Path) -> "StoreLayout":
        """Return the layout of a store that is named by its directory, or by its ``broker.conf``.

        The log of one queue, as tiered storage and compacted topics have it, is a store without
        queues and index. Of any other directory a ``broker.conf`` in it, or beside it, is used if
        it names that directory.

        :raises NotAStore: if the file names paths that are not there.
        """
        if path.is_file():
            return cls(*paths_of(path))
        # Of tiered storage, or of a compacted topic.
        if path.name == QUEUE_LOG or path.parent.parent.name == COMPACTED:
            return cls(path, (path,))
        noted = cls(path).noted_log()
        if noted is not None:
            return cls(path, (noted,))
        near = (path, path.parent, path.parent / "conf")
        for file in (directory / "broker.conf" for directory in near):
            if file.is_file():
                with suppress(NotAStore):
                    layout = cls(*paths_of(file))
                    if fs.is_same(layout.root, path):
                        return cls(path, layout.elsewhere, layout.tiered)
        return cls(path)

    def noted_log(self) -> Path | None:
        """Return where a broker of ours has the log of this store, if that is elsewhere."""
        try:
            content = fs.read_bytes(self.log_path, limits.MAX_STATE_BYTES)
        except OSError:
            return None
        path = None if content is None else Path(content.decode("utf-8", "surrogateescape"))
        return path if path is not None and path.is_dir() else None


def paths_of(file: Path) -> tuple[Path, tuple[Path, ...], Path | None]:
    """Return the store that a ``broker.conf`` names, the directories of its log, and where its
    tiered storage is, which need not be there.

    :raises NotAStore: if the file cannot be read, or names paths that are not there, or contradict
        each other.
    """
    try:
        content = fs.read_bytes(file, limits.MAX_CONFIG_READ_BYTES) or b""
    except OSError as error:
        raise NotAStore(f"{file} cannot be read: {error.strerror}") from error
    values = java_properties.loads(content.decode("utf-8", "replace"))
    brokers = values.get(_BROKERS_OF_CONTAINER)
    if brokers:
        named = " or ".join(brokers.split(_SEPARATOR_OF_BROKERS))
        raise NotAStore(f"{file} is of a broker container: name the file of one broker, {named}")
    root = _directory(file, "storePathRootDir", values.get("storePathRootDir") or "~/store")
    tiered = _tiered_storage(values)
    if values.get("enableDLegerCommitLog", "").strip() == "true":
        # What was stored before the broker was switched to DLedger.
        before = (Path(each) for _, each in _logs_of(values))
        old = [path for path in before if path.is_dir()] or [root / "commitlog"]
        older = (each for each in old if each.is_dir())
        return root, (_dledger_log(file, values, root), *older), tiered
    logs = [_directory(file, key, each) for key, each in _logs_of(values)]
    for number, path in enumerate(logs):
        if any(fs.is_same(path, other) for other in logs[:number]):
            raise NotAStore(f"{file} names {path} twice as a directory of the log")
    return root, tuple(logs) or (root / "commitlog",), tiered


def _tiered_storage(values: Mapping[str, str]) -> Path | None:
    path = values.get("tieredStoreFilePath", "").strip()
    if not path:
        return None
    cluster = values.get("brokerClusterName", "").strip() or "DefaultCluster"
    digest = hashlib.md5(cluster.encode(), usedforsecurity=False).hexdigest()
    return Path(path).expanduser() / f"{digest[:8]}_{cluster}"


def _logs_of(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each directory of the log, with the key that names it."""
    for key in ("storePathCommitLog", "readOnlyCommitLogStorePaths"):
        for each in values.get(key, "").split(_SEPARATOR):
            if each.strip():
                yield key, each.strip()


def _dledger_log(file: Path, values: Mapping[str, str], root: Path) -> Path:
    key = "storePathDLedgerCommitLog"
    base = _directory(file, key, values[key]) if values.get(key) else root
    name = f"dledger-{values.get('dLegerSelfId', '').strip()}"
    return _directory(file, "dLegerSelfId", str(base / name)) / "data"


def _directory(file: Path, key: str, text: str) -> Path:
    path = Path(text.strip()).expanduser()
    if not path.is_absolute():
        raise NotAStore(
            f"{file}: {key} is {text!r}, relative to where the broker was started: give the whole "
            "path"
        )
    if not path.is_dir():
        raise NotAStore(f"{file}: {key} is {path}, which is not a directory")
    return path
