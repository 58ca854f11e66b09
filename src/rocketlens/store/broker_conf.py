"""Which paths of a store a ``broker.conf`` of RocketMQ names.

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
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.errors import NotAStore
from rocketlens.formats import java_properties
from rocketlens.store import fs

_SEPARATOR: Final = ","
_BROKERS_OF_CONTAINER: Final = "brokerConfigPaths"
_SEPARATOR_OF_BROKERS: Final = ":"


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
