"""The paths of a store's files: RocketMQ's, and those that RocketLens adds.

RocketLens's files are in the directory ``rocketlens``, which RocketMQ ignores. RocketMQ opens every
file that it finds in ``commitlog``, ``consumequeue`` and ``index``, so no other file may ever be
there, not even for a moment.

======================  =========================================================================
``rocketlens/``         content
======================  =========================================================================
``state.json``          up to where the consume queues are synced, and their lengths
``synced``              up to where the log is synced; written in place after each sync
``index.json``          up to where the index files are synced (the safe offset), and their headers
``index/``              new index files, while ``index/`` of the store has those of another builder
``index.lock``          locked by the builder of index files
``log_path``            the directory of the log, if it is not ``commitlog`` in the store
``deleted.json``        deleted topics of which the log still has messages
``name_taken.json``     another broker that registered under this broker's name, if any
``aside/``              damaged bytes, and bytes that recovery cut off the log or a queue
``scratch/``            files being created, and consume queues being removed
``tap.json``            if the store is a copy: the broker it is copied from
======================  =========================================================================

All of these can be deleted while no broker runs: the next start then reads the whole log.

A ``broker.conf`` of RocketMQ names these paths of a store:

=============================  =====================================================================
key                            names
=============================  =====================================================================
``storePathRootDir``           the store; ``~/store`` if it is missing
``storePathCommitLog``         the directories of its log, separated by commas; ``commitlog`` in the
                               store if it is missing
``readOnlyCommitLogStorePaths``  directories with older files of the log, separated by commas
``enableDLegerCommitLog``      ``true``: the log is ``dledger-ID/data``; older files are in the
                               directories above
``dLegerSelfId``               that ID
``storePathDLedgerCommitLog``  the parent of ``dledger-ID``, if it is not the store
``tieredStoreFilePath``        the directory of tiered storage of RocketMQ 5's local provider
``brokerClusterName``          names the directory in it; ``DefaultCluster`` if missing
``brokerConfigPaths``          the files of the brokers in a container, separated by colons: each
                               has a store
=============================  =====================================================================

All other files are in the store. If the file has a key twice, the last value counts, as in
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
"""Directory of the log of one queue in tiered storage: BROKER/TOPIC/QUEUE/COMMIT_LOG."""
COMPACTED: Final = "compactionLog"
"""Directory of the logs of compacted topics: TOPIC/QUEUE/files."""
INDEX_LOCK: Final = "index.lock"
_NAME_FORMAT: Final = "%Y%m%d%H%M%S"
_LATEST_NAMED_MS: Final = 253_370_764_800_000
"""The year 9999. A later time is damage, and is replaced by this one."""
_SEPARATOR: Final = ","
_BROKERS_OF_CONTAINER: Final = "brokerConfigPaths"
_SEPARATOR_OF_BROKERS: Final = ":"


def index_file_name(timestamp_ms: int, before: str) -> str:
    """Return an index file's name: a time in the local zone, later than the name ``before``."""
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

    ``elsewhere``: the directories of its log, if the log is not ``commitlog`` in ``root``.
    ``tiered``: the directory of tiered storage that ``broker.conf`` names.
    """

    def __init__(
        self, root: Path, elsewhere: tuple[Path, ...] = (), tiered: Path | None = None
    ) -> None:
        self.root: Final = root
        self.elsewhere: Final = elsewhere
        self.tiered: Final = tiered
        self.commit_logs: Final = elsewhere or (root / "commitlog",)
        """The directories of segments. New ones are written to the first."""
        self.commit_log: Final = self.commit_logs[0]
        self.is_log_of_queue: Final = elsewhere == (root,)
        self.disks: Final = (root, *elsewhere)
        """A directory on each disk of the store."""
        self.consume_queue: Final = root / "consumequeue"
        self.batch_queues: Final = root / BATCH_QUEUES
        """TOPIC/QUEUE/files of RocketMQ 5's topics with batches of messages as records."""
        self.index: Final = root / "index"
        self.config: Final = root / "config"
        self.compacted: Final = root / "compaction" / COMPACTED
        """The logs of RocketMQ 5's compacted topics, which keep the last message of each key."""
        self.tiers: Final = self.config / "tieredStoreMetadata.json"
        """The table of files in tiered storage of RocketMQ 5."""
        self.checkpoint: Final = root / "checkpoint"
        self.abort: Final = root / "abort"
        """Exists while a broker runs, and after one that did not stop cleanly."""
        self.own: Final = root / "rocketlens"
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

    def segment_path(self, base_offset: int) -> Path:
        return self.commit_log / f"{base_offset:020}"

    def __repr__(self) -> str:
        return f"StoreLayout({self.root!r}, {self.elsewhere!r}, {self.tiered!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreLayout) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    @classmethod
    def of(cls, path: Path) -> "StoreLayout":
        """Return the layout of a store, given its directory or its ``broker.conf``.

        The log of one queue, from tiered storage or a compacted topic, is a store without queues
        and index. For another directory, a ``broker.conf`` in it or beside it is used if it names
        the directory.

        :raises NotAStore: if the file names paths that do not exist.
        """
        if path.is_file():
            return cls(*paths_of(path))
        if path.name == QUEUE_LOG or path.parent.parent.name == COMPACTED:
            return cls(path, (path,))
        log = cls(path).recorded_log()
        if log is not None:
            return cls(path, (log,))
        near = (path, path.parent, path.parent / "conf")
        for file in (directory / "broker.conf" for directory in near):
            if file.is_file():
                with suppress(NotAStore):
                    layout = cls(*paths_of(file))
                    if fs.is_same(layout.root, path):
                        return cls(path, layout.elsewhere, layout.tiered)
        return cls(path)

    def recorded_log(self) -> Path | None:
        try:
            content = fs.read_bytes(self.log_path, limits.MAX_STATE_BYTES)
        except OSError:
            return None
        path = None if content is None else Path(content.decode("utf-8", "surrogateescape"))
        return path if path is not None and path.is_dir() else None


def paths_of(file: Path) -> tuple[Path, tuple[Path, ...], Path | None]:
    """Return from a ``broker.conf`` the store, the directories of its log, and its tiered storage.

    Only the directory of tiered storage may be missing.

    :raises NotAStore: if the file cannot be read, or names paths that do not exist or contradict
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
        # The log from before the broker was switched to DLedger.
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
    """Yield the directories of the log, each after the key that names it."""
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
