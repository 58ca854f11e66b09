"""Explains why a directory has no commit log: its kind of layout, or a store near it."""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.formats.dledger import committed_index
from rocketlens.store import fs
from rocketlens.store.layout import COMPACTED, QUEUE_LOG, StoreLayout

_TERM: Final = re.compile(rb"^currTerm=(\d{1,19})\s*$", re.MULTILINE)
_DLEDGER: Final = "dledger-"
_LEVELS_OF_TIERS: Final = 5
"""Directories above the log of a queue: root of tiered storage, cluster, broker, topic, queue."""


def missing_log(commit_log: Path) -> str:
    """Return the reason why a directory has no log, as far as its files show it, and the remedy."""
    root = commit_log.parent
    if not _exists(root):
        text = f"{root}: no such file or directory"
        root = root.absolute().parent
    else:
        explainers = (_empty_replica, _logs_of_queues, _log_elsewhere, _bare_log)
        text = next(filter(None, (explain(root, commit_log) for explain in explainers)), "")
        if text:
            return text
        text = f"{commit_log} holds no commit log segment (a file named by 20 digits)"
    stores = _stores_near(root)
    if not stores:
        return text
    named = " or ".join(map(str, stores[: limits.MAX_NAMED_STORES]))
    more = len(stores) - limits.MAX_NAMED_STORES
    return f"{text}; did you mean {named}?" + (f" ({more} more)" if more > 0 else "")


def _empty_replica(root: Path, commit_log: Path) -> str:
    """Return a text if `root` is, has or is inside a DLedger log without entries."""
    if root.name.startswith(_DLEDGER):
        replicas, is_part = [root], commit_log.name != "data"
    elif root.name == "data" and root.parent.name.startswith(_DLEDGER):
        replicas, is_part = [root.parent], True
    else:
        replicas, is_part = sorted(_directories(root, f"{_DLEDGER}*")), False
    if not replicas:
        return ""
    if is_part:
        store = replicas[0].parent
        return f"{replicas[0]} is the DLedger log of the store {store}: give that directory"
    problems = []
    for each in replicas:
        term = _TERM.search(_content(each / "currterm"))
        named = "a DLedger log" if term is None else f"a DLedger log in term {int(term[1])}"
        committed = committed_index(_content(each / "checkpoint"))
        if committed is None or committed < 0:
            problems.append(f"{each} is {named} in which no entry is committed")
        else:
            problems.append(
                f"{each} is {named} whose checkpoint has {committed + 1} committed entries, and "
                f"{each / 'data'} has none of them: copy it from the broker, or from another "
                "replica"
            )
    return "; ".join(problems)


def _logs_of_queues(root: Path, _: Path) -> str:
    """Return a text if only single queues have logs: tiered storage, or compacted topics."""
    if StoreLayout(root).tiers.is_file() and not _is_directory(root / "commitlog"):
        return (
            f"{root} has no log, and its messages are in tiered storage: open the log of a queue "
            f"there by itself (BROKER/TOPIC/QUEUE/{QUEUE_LOG})"
        )
    # Directories CONSUME_QUEUE and INDEX are beside the log.
    first = _log_below(root) or next(_directories(root.parent, QUEUE_LOG), None)
    if first is not None:
        return f"{root} has files of tiered storage: open the log of a queue by itself, as {first}"
    compacted = next(_directories(root, f"compaction/{COMPACTED}/*/*"), None)
    if compacted is not None and not _is_directory(root / "commitlog"):
        return (
            f"{root} has no log but those of compacted topics: open that of a queue by itself, as "
            f"{compacted}"
        )
    return ""


def _log_below(root: Path) -> Path | None:
    """Return the first log of a queue of tiered storage below a directory."""
    remaining = limits.MAX_LOOKED_AT_ENTRIES
    level = [root]
    for _ in range(_LEVELS_OF_TIERS + 1):
        following = []
        for directory in level:
            for each in islice(_entries(directory), remaining):
                remaining -= 1
                if each.name == QUEUE_LOG and _is_directory(each):
                    return each
                if _is_directory(each):
                    following.append(each)
        level = sorted(following)
    return None


def _log_elsewhere(root: Path, commit_log: Path) -> str:
    """Return a text if `root` is a store whose log is in another directory, or missing."""
    layout = StoreLayout(root)
    caches = (layout.consume_queue, layout.batch_queues, layout.index)
    there = [each.name for each in caches if next(_entries(each), None) is not None]
    if layout.checkpoint.is_file() or (layout.config / "topics.json").is_file():
        there += ["config"]
    if not there:
        return ""
    if there == ["config"] and _is_directory(commit_log):
        return (
            f"{root} is the store of a broker that stored no message yet, or a copy of it without "
            f"the files in {commit_log}"
        )
    return (
        f"{root} is a store ({', '.join(there)}) and its log is elsewhere: give its broker.conf, "
        f"with the paths of this machine, with --broker-conf, or copy {commit_log.name}, too"
    )


def _bare_log(root: Path, _: Path) -> str:
    """Return a text if `root` is the directory of a log itself."""
    is_log = any(each.name.isdigit() and len(each.name) == 20 for each in _entries(root))
    if not is_log or _has_log(root.absolute().parent):
        return ""
    return (
        f"{root} has files of a log (named by 20 digits), and no store around them: give the "
        "broker.conf that names both with --broker-conf"
    )


def _stores_near(root: Path) -> list[Path]:
    """Return `root/store` or the parent of `root` if it is a store, else the stores below."""
    for near in (root / "store", root.absolute().parent):
        if _has_log(near):
            return [near]
    below = sorted(_directories(root, "*"))
    return [store for child in below for store in (child, child / "store") if _has_log(store)]


def _has_log(store: Path) -> bool:
    return _is_directory(store / "commitlog") or any(_directories(store, f"{_DLEDGER}*"))


def _directories(root: Path, pattern: str) -> Iterator[Path]:
    with suppress(OSError):
        yield from filter(_is_directory, islice(root.glob(pattern), limits.MAX_LOOKED_AT_ENTRIES))


def _entries(directory: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from islice(directory.iterdir(), limits.MAX_LOOKED_AT_ENTRIES)


def _content(path: Path) -> bytes:
    with suppress(OSError):
        return fs.read_bytes(path, limits.MAX_STATE_BYTES) or b""
    return b""


def _exists(path: Path) -> bool:
    with suppress(OSError):
        return path.exists()
    return True


def _is_directory(path: Path) -> bool:
    with suppress(OSError):
        return path.is_dir()
    return False
