"""A disk whose power can be cut at any moment: below every writer of a store.

:class:`SimDisk` stands over a real directory, so writers map and write real files. Beside it, it
knows what is durable: for each file the bytes and the size that its last sync covered, for each
directory the names. :meth:`SimDisk.image` writes what may be left after a power cut.

===============  ==================================================================================
what             after the power cut
===============  ==================================================================================
bytes            synced ones are there. Each sector of 512 bytes that was written since has its old
                 content or its new, independently of all others; or its changed bytes are garbage,
                 except in a log: it is written into blocks that are reserved and read as zeros
sizes            synced ones hold. A size that changed since is the old one, the new one, or, where
                 the file grew by writing, any sector in between
names            those of a synced directory are there. What was done to names since is kept or
                 lost, one independently of the other; only a rename, or an exchange of two
                 directories, is one step. A change of a name needs the earlier ones of that name
syncing a file   does not make its name durable, nor does syncing a directory make files durable
the machine      was started again: ``boot_id`` names another start
===============  ==================================================================================

Names are observed, not announced: whoever makes, renames or deletes a file needs no method of the
disk for it. Only what waits for the disk must go through it. ``on_event`` is called before and
after, and in the middle of, each sync: there the test cuts the power, or does what another thread
could do at this moment.

What a page cache does by itself, writing some sectors back long before anyone asks, is
:meth:`SimDisk.write_back`.
"""

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np

from rocketlens.store.disk import Disk, WritableFile

SECTOR_BYTES = 512
MOODS = ("kept", "dropped", "mixed", "mixed", "first", "last", "garbage", "bytes", "names")
"""What an image does with what was not synced. ``first`` and ``last``: with the sectors of a file
from its begin, or its end. ``bytes``: all bytes are lost and all names kept; ``names``: the other
way round."""

LOG = "commitlog"
"""The name of the directory whose files never have garbage."""

Key = tuple[int, str]
"""A name: the directory's inode number, and the name in it."""
Change = dict[Key, int | None]
"""What one step did to names: the inode that each has since, None for none."""


class PowerCut(BaseException):
    """Ends the writer at the moment of the cut. Nothing catches it but who cut the power."""


@dataclass
class Inode:
    """A file or directory, whatever its name. An open descriptor keeps its number from others."""

    number: int
    descriptor: int
    is_directory: bool
    durable: bytes = b""
    has_grown_by_writing: bool = True

    def content(self) -> bytes:
        """The bytes of the file now."""
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)

    def close(self) -> None:
        os.close(self.descriptor)


class SimFile(WritableFile):
    """A mapped file whose syncs are the disk's."""

    def __init__(self, path: Path, disk: "SimDisk") -> None:
        super().__init__(path)
        self.disk = disk

    def sync(self) -> None:
        self.disk.sync_inode(os.fstat(self._descriptor).st_ino, self.path)


@dataclass
class SimDisk(Disk):
    """A disk over directory ``root``; what is there at the begin is durable.

    ``boot_name``: which start of the machine this is; ``used``: how full the disk is.
    """

    root: Path
    on_event: Callable[[str], None] = lambda _: None
    boot_name: str = "first"
    used: float = 0.0
    events: int = 0
    inodes: dict[int, Inode] = field(default_factory=dict)
    names: Change = field(default_factory=dict)
    durable_names: Change = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = Path(self.root)
        self.top = self.root.stat().st_ino
        self._know(self.top, self.root, is_directory=True)
        self.observe()
        self.durable_names = dict(self.names)
        self.pending.clear()
        for inode in self.inodes.values():
            if not inode.is_directory:
                inode.durable = inode.content()

    def close(self) -> None:
        """Let go of everything."""
        for inode in self.inodes.values():
            inode.close()
        self.inodes.clear()

    def event(self, what: str) -> None:
        """Count a moment at which the power may go."""
        self.events += 1
        tracing = sys.gettrace()
        sys.settrace(None)
        try:
            self.on_event(what)
        finally:
            sys.settrace(tracing)

    # What writers ask for.

    def make_file(self, path: Path, size: int, scratch: Path) -> None:
        super().make_file(path, size, scratch)
        self.observe()
        number = path.stat().st_ino
        self.inodes[number].has_grown_by_writing = False
        self.event(f"made {path.name}")

    def open_file(self, path: Path) -> WritableFile:
        return SimFile(path, self)

    def set_size(self, path: Path, size: int) -> None:
        super().set_size(path, size)
        self.observe()
        self.event(f"sized {path.name}")

    def move(self, path: Path, target: Path) -> None:
        super().move(path, target)
        self.observe()
        self.event(f"moved {path.name}")

    def remove_file(self, path: Path) -> None:
        super().remove_file(path)
        self.observe()
        self.event(f"removed {path.name}")

    def remove_tree(self, directory: Path) -> None:
        super().remove_tree(directory)
        self.observe()
        self.event(f"removed {directory.name}")

    def exchange_directories(self, new: Path, current: Path) -> None:
        self.observe()
        super().exchange_directories(new, current)

    def sync_file(self, path: Path) -> None:
        self.sync_inode(path.stat().st_ino, path)

    def sync_descriptor(self, descriptor: int, path: Path) -> None:
        number = os.fstat(descriptor).st_ino
        self.sync_inode(number, path)

    def sync_directory(self, directory: Path) -> None:
        number = directory.stat().st_ino
        self.observe()
        self.event(f"before sync of {directory.name}/")
        # What is done in the middle of the sync is not in it.
        self.observe()
        covered = len(self.pending)
        self.event(f"in sync of {directory.name}/")
        self._commit(
            [
                place
                for place, change in enumerate(self.pending[:covered])
                if any(key[0] == number for key in change)
            ]
        )
        self.event(f"after sync of {directory.name}/")

    def sync_inode(self, number: int, path: Path) -> None:
        """Make the bytes and the size of a file durable."""
        if number not in self.inodes:
            self.observe()
        self.event(f"before sync of {path.name}")
        inode = self.inodes[number]
        covered = inode.content()
        self.event(f"in sync of {path.name}")
        inode.durable = covered
        self.event(f"after sync of {path.name}")

    def boot_id(self) -> str:
        return self.boot_name

    def used_ratio(self, _: Path) -> float:
        return self.used

    # What is known.

    def _know(self, number: int, path: str | Path, *, is_directory: bool) -> Inode:
        descriptor = os.open(path, os.O_RDONLY)
        inode = self.inodes[number] = Inode(number, descriptor, is_directory)
        return inode

    def observe(self) -> None:
        """Note what was done to names since the last time."""
        found: Change = {}
        self._list(str(self.root), self.top, found)
        if found != self.names:
            self.pending += _changes(self.names, found)
            self.names = found
            self._forget()

    def _list(self, path: str, directory: int, found: Change) -> None:
        with os.scandir(path) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        for entry in entries:
            number = found[directory, entry.name] = entry.inode()
            inode = self.inodes.get(number)
            if inode is None:
                inode = self._know(number, entry.path, is_directory=entry.is_dir())
            if inode.is_directory:
                self._list(entry.path, number, found)

    def _forget(self) -> None:
        """Close inodes that no name leads to any more, whatever is kept or lost."""
        used = {self.top, *self.names.values(), *self.durable_names.values()}
        used.update(number for change in self.pending for number in change.values())
        for number in self.inodes.keys() - used:
            self.inodes.pop(number).close()

    def _closure(self, places: list[int]) -> list[int]:
        """Add the earlier pending changes that some changes need; ascending."""
        chosen = set(places)
        keys = {key for place in places for key in self.pending[place]}
        for place in range(max(places, default=-1), -1, -1):
            change = self.pending[place]
            if place in chosen or not keys.isdisjoint(change):
                chosen.add(place)
                keys |= change.keys()
        return sorted(chosen)

    def _commit(self, places: list[int]) -> None:
        chosen = self._closure(places)
        for place in chosen:
            _apply(self.durable_names, self.pending[place])
        taken = set(chosen)
        self.pending = [one for place, one in enumerate(self.pending) if place not in taken]
        self._forget()

    # The power goes.

    def write_back(self, randomness: random.Random, share: float) -> None:
        """Make some sectors and names durable that nobody asked for."""
        self.observe()
        for inode in self.inodes.values():
            if not inode.is_directory and randomness.random() < share:
                inode.durable = _content(inode, "mixed", randomness)
        places = [n for n in range(len(self.pending)) if randomness.random() < share]
        self._commit(places)

    def image(self, target: Path, randomness: random.Random, mood: str = "") -> str:
        """Write what may be left if the power goes now to directory ``target``; gives its mood."""
        self.observe()
        mood = mood or randomness.choice(MOODS)
        share = {"dropped": 0.0, "names": 0.0, "kept": 1.0, "bytes": 1.0}.get(mood)
        if share is None:
            share = randomness.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        names = dict(self.durable_names)
        kept = [n for n in range(len(self.pending)) if randomness.random() < share]
        for place in self._closure(kept):
            _apply(names, self.pending[place])
        below: dict[int, list[tuple[str, int]]] = {}
        for (directory, name), number in sorted(names.items()):
            assert number is not None
            below.setdefault(directory, []).append((name, number))
        self._write(target, self.top, below, mood, randomness)
        return mood

    def _write(
        self,
        target: Path,
        number: int,
        below: dict[int, list[tuple[str, int]]],
        mood: str,
        randomness: random.Random,
    ) -> None:
        target.mkdir()
        for name, inner in below.get(number, []):
            inode = self.inodes[inner]
            if inode.is_directory:
                self._write(target / name, inner, below, mood, randomness)
            else:
                own = "mixed" if mood == "garbage" and target.name == LOG else mood
                with (target / name).open("wb", buffering=0) as file:
                    file.write(_content(inode, own, randomness))

    @contextmanager
    def between_lines(self, chance: Callable[[], bool]) -> Iterator[None]:
        """Call ``on_event`` between lines of the store's code, where ``chance`` says so, too."""

        def trace(frame: FrameType, what: str, _: object) -> object:
            if what == "line" and chance():
                self.event(f"{frame.f_code.co_name}, line {frame.f_lineno}")
            return trace

        def entered(frame: FrameType, _: str, __: object) -> object:
            return trace if "/rocketlens/store/" in frame.f_code.co_filename else None

        before = sys.gettrace()
        sys.settrace(entered)
        try:
            yield
        finally:
            sys.settrace(before)


def _apply(names: Change, change: Change) -> None:
    for key, number in change.items():
        if number is None:
            names.pop(key, None)
        else:
            names[key] = number


def _changes(before: Change, after: Change) -> list[Change]:
    """Tell apart what was done to names: names that an inode left or came to are one change."""
    changed = [
        key for key in {**before, **after} if before.get(key) != after.get(key)
    ]  # fmt: skip
    groups: dict[Key, list[Key]] = {key: [key] for key in changed}
    left: dict[int, Key] = {}
    for key in changed:
        number = before.get(key)
        if number is not None:
            left[number] = key
    for key in changed:
        number = after.get(key)
        source = left.get(number) if number is not None else None
        if source is not None and groups[source] is not groups[key]:
            merged = groups[source] + groups[key]
            for one in merged:
                groups[one] = merged
    unique = {id(group): group for group in groups.values()}
    return [{key: after.get(key) for key in group} for group in unique.values()]


def _content(inode: Inode, mood: str, randomness: random.Random) -> bytes:
    """Give the bytes of a file after the power went."""
    durable, written = inode.durable, inode.content()
    if durable == written or mood == "kept":
        return written
    if mood in ("dropped", "bytes"):
        size = len(written) if mood == "bytes" and not inode.has_grown_by_writing else len(durable)
        return durable[:size].ljust(size, b"\0")
    if mood == "names":
        return written
    size = _size(inode, durable, written, randomness)
    length = -(-max(len(durable), len(written), 1) // SECTOR_BYTES) * SECTOR_BYTES
    old, new = (
        np.frombuffer(content.ljust(length, b"\0"), np.uint8).reshape(-1, SECTOR_BYTES)
        for content in (durable, written)
    )
    changed = old != new
    dirty = np.flatnonzero(changed.any(axis=1))
    kept = _kept(len(dirty), mood, randomness)
    result = old.copy()
    result[dirty[kept]] = new[dirty[kept]]
    if mood == "garbage":
        for sector in dirty.tolist():
            if randomness.random() < 0.25:
                result[sector][changed[sector]] = _garbage(written, randomness)[changed[sector]]
    return result.tobytes()[:size]


def _size(inode: Inode, durable: bytes, written: bytes, randomness: random.Random) -> int:
    low, high = sorted((len(durable), len(written)))
    if low == high or not inode.has_grown_by_writing:
        return randomness.choice((len(durable), len(written)))
    between = randomness.randint(low // SECTOR_BYTES, high // SECTOR_BYTES) * SECTOR_BYTES
    return randomness.choice((low, high, max(low, between)))


def _kept(
    count: int, mood: str, randomness: random.Random
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Choose which of ``count`` changed sectors have their new content."""
    if mood in ("first", "last"):
        edge = randomness.randint(0, count)
        before = np.arange(count) < edge
        return before if mood == "first" else ~before
    share = randomness.choice((0.1, 0.5, 0.9))
    return np.array([randomness.random() < share for _ in range(count)], np.bool_)


def _garbage(
    written: bytes, randomness: random.Random
) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """Give a sector of noise, of ones, or of another part of the file, as a reused block has."""
    kind = randomness.randrange(3)
    content = b"\xff" * SECTOR_BYTES
    if kind == 0:
        content = randomness.randbytes(SECTOR_BYTES)
    elif kind == 1 and len(written) >= SECTOR_BYTES:
        start = randomness.randrange(len(written) // SECTOR_BYTES) * SECTOR_BYTES
        content = written[start : start + SECTOR_BYTES]
    return np.frombuffer(content, np.uint8)
