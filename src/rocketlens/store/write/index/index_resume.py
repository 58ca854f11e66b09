"""Finds the resume point of a builder: the proven index files, and unproven ones to keep.

Between two builders a RocketMQ broker can have added to the last file, created new ones or deleted
some; the power can have failed; the log can have been replaced. So a builder continues a file only
as far as ``rocketlens/index.json`` proves it, if that note is sound and belongs to this log. A full
file is never written again: its header proves it. The entries of the last file were synced before
the note was written, and another writer adds entries only after them. But the slots can lead to
these new entries. If the checksum of the slots is not that of the note, the file is created again
from its proven entries, and replaces the old one atomically. Readers keep the old one open.

Unproven files are deleted only when others cover as much of the log: a RocketMQ broker that gets
the store back would not create them again. Meanwhile the builder works in ``rocketlens/index/``,
with links to the proven full files. When its files cover enough, it declares them in the note to be
those of the store, moves them into ``index/`` one by one, and deletes the others. After an
interruption the next start continues the moves.
"""

import zlib
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.index_file import (
    ENTRY_LAYOUT,
    HEADER_BYTES,
    Geometry,
    IndexHeader,
    decode_entry,
    decode_header,
)
from rocketlens.late import np
from rocketlens.store import fs
from rocketlens.store.disk import Disk, WritableFile
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.index.index_state import IndexState, ResumePoint, read_index_state
from rocketlens.store.read.log.commitlog import CommitLog

_NAME_DIGITS: Final = 17


class Resumed(NamedTuple):
    """The resume point, and the files in ``directory``, oldest first."""

    directory: Path
    names: list[str]
    headers: list[IndexHeader]
    resume_point: ResumePoint
    kept_until: int
    """While ``directory`` is not ``index/``: the end of the log that ``index/`` covers."""
    kept_full: IndexHeader | None
    """The header of the newest full file in ``index/`` then."""


def index_names(directory: Path) -> list[str]:
    return [
        entry.name
        for entry in fs.entries(directory)
        if len(entry.name) == _NAME_DIGITS and entry.name.isdigit() and entry.is_file()
    ]


def slots_crc(path: Path, geometry: Geometry) -> int:
    with fs.MappedFile(path, geometry.entry_position(0)) as mapped:
        return zlib.crc32(mapped.view)


def resume(
    layout: StoreLayout,
    geometry: Geometry,
    disk: Disk,
    log: CommitLog,
    *,
    with_tags: bool,
    log_end: int,
) -> Resumed:
    """Return the resume point and the files. The log has synced records below ``log_end``.

    :raises OSError: if something cannot be read or written now. The call can be repeated.
    """
    return _Resume(layout, geometry, disk, log).run(with_tags=with_tags, log_end=log_end)


class _Resume:
    def __init__(self, layout: StoreLayout, geometry: Geometry, disk: Disk, log: CommitLog) -> None:
        self._layout = layout
        self._geometry = geometry
        self._disk = disk
        self._log = log
        self._proven: list[tuple[str, IndexHeader, Path]] = []
        """Name, header, and the directory that has the file."""
        self._is_last_proven = False

    def run(self, *, with_tags: bool, log_end: int) -> Resumed:
        layout = self._layout
        state = read_index_state(layout)
        if state is not None and not self._is_believed(state, with_tags=with_tags):
            state = None
        if state is not None:
            self._prove(state)
        is_whole = state is not None and len(self._proven) == len(state.files)
        others = self._others()
        if not others:
            is_whole &= self._take_into(layout.index)
            others = self._others()
        directory = layout.index
        kept_until, kept_full = 0, None
        if others:
            directory = layout.new_index
            kept_until, kept_full = self._reach_of(others, log_end)
            is_whole &= self._take_into(directory)
        else:
            self._disk.remove_tree(layout.new_index)
        names = [name for name, _, _ in self._proven]
        headers = [header for _, header, _ in self._proven]
        resume_point = (
            state.resume_point if state is not None and is_whole else self._resume_point_after()
        )
        return Resumed(directory, names, headers, resume_point, kept_until, kept_full)

    def _is_believed(self, state: IndexState, *, with_tags: bool) -> bool:
        """Return whether a note belongs to this log, with the same geometry and tags."""
        if (state.with_tags, state.geometry) != (with_tags, self._geometry):
            return False
        if state.mark is None:
            return not state.files and state.resume_point == (self._log.min_offset, 0)
        safe_offset = state.resume_point.physical_offset
        return (
            state.mark.end_offset <= safe_offset
            and state.mark.is_of(self._log)
            and self._is_boundary(safe_offset)
        )

    def _is_boundary(self, physical_offset: int) -> bool:
        """Return whether an offset is that of a record, or the end of the log or of a segment."""
        if physical_offset >= self._log.max_offset:
            return physical_offset == self._log.max_offset
        try:
            self._log.record_at(physical_offset, check_crc=False)
        except RecordError as error:
            return error.reason in ("end", "blank")
        return True

    def _prove(self, state: IndexState) -> None:
        """Collect the files that have not changed since their sync, up to the first changed one."""
        for number, (name, header) in enumerate(state.files):
            is_last = number == len(state.files) - 1
            for directory in (self._layout.new_index, self._layout.index):
                if self._is_good(directory / name, header, is_last=is_last):
                    self._proven.append((name, header, directory))
                    break
            else:
                return
        if self._proven:
            name, header, directory = self._proven[-1]
            self._is_last_proven = self._is_full(header) or (
                state.slots_crc is not None
                and slots_crc(directory / name, self._geometry) == state.slots_crc
            )

    def _is_good(self, path: Path, header: IndexHeader, *, is_last: bool) -> bool:
        actual = self._header_of(path)
        if actual is None or not self._points_to_log(header):
            return False
        if actual == header:
            return True
        return (
            is_last
            and not self._is_full(header)
            and actual.next_entry >= header.next_entry
            and (header.next_entry <= 1 or actual.begin_offset == header.begin_offset)
        )

    def _header_of(self, path: Path) -> IndexHeader | None:
        content = fs.read_bytes(path, HEADER_BYTES)
        if content is None or path.stat().st_size != self._geometry.file_bytes:
            return None
        try:
            return decode_header(content)
        except IndexFileError:
            return None

    def _is_full(self, header: IndexHeader) -> bool:
        return header.next_entry >= self._geometry.entry_count

    def _points_to_log(self, header: IndexHeader) -> bool:
        """Return whether a file's last entry is for a record that the log has, or has deleted."""
        if header.next_entry <= 1 or header.end_offset < self._log.min_offset:
            return True
        try:
            record = self._log.record_at(header.end_offset, check_crc=False)
        except RecordError:
            return False
        return record.store_timestamp_ms == header.end_timestamp_ms

    def _others(self) -> list[str]:
        """Return the unproven files in ``index/``; delete those without entries."""
        proven = {name for name, _, _ in self._proven}
        others: list[str] = []
        for name in index_names(self._layout.index):
            if name in proven:
                continue
            content = fs.read_bytes(self._layout.index / name, HEADER_BYTES) or b""
            if any(content):
                others.append(name)
            else:
                self._disk.remove_file(self._layout.index / name)
        return others

    def _reach_of(self, others: list[str], log_end: int) -> tuple[int, IndexHeader | None]:
        """Return the end of the log that ``index/`` covers, and its newest full header.

        ``others``: the unproven files. Damaged ones are ignored.
        """
        reach, newest = 0, None
        for name in {*others, *(name for name, _, _ in self._proven)}:
            header = self._header_of(self._layout.index / name)
            if header is None or header.next_entry <= 1:
                continue
            reach = max(reach, header.end_offset + 1)
            if self._is_full(header) and self._points_to_log(header):
                newest = max(newest or header, header, key=lambda one: one.end_offset)
        return min(reach, log_end), newest

    def _take_into(self, directory: Path) -> bool:
        """Take the proven files into a directory; return False without room for the last one.

        Full files are moved from ``rocketlens/index/``, or linked from ``index/``.
        """
        is_whole = True
        taken: list[tuple[str, IndexHeader, Path]] = []
        for name, header, source in self._proven:
            target = directory / name
            if header.next_entry <= 1:
                # An empty file is created again with the next entry.
                self._disk.remove_file(source / name)
                continue
            if not self._is_full(header) and not self._is_last_proven:
                try:
                    self._remake(source / name, header, target)
                except OSError as error:
                    if error.errno not in fs.DISK_FULL_ERRORS:
                        raise
                    is_whole = False
                    continue
            elif source == directory:
                pass
            elif directory == self._layout.index:
                self._disk.move(source / name, target)
            elif not self._is_full(header) or not self._link(source / name, target):
                self._remake(source / name, header, target)
            taken.append((name, header, directory))
        self._is_last_proven = True
        self._proven = taken
        names = {name for name, _, _ in taken}
        if directory == self._layout.new_index:
            for name in index_names(directory):
                if name not in names:
                    self._disk.remove_file(directory / name)
        if taken:
            self._disk.sync_directory(directory)
            self._disk.sync_directory(directory.parent)
        return is_whole

    def _link(self, source: Path, target: Path) -> bool:
        try:
            self._disk.link_file(source, target)
        except OSError as error:
            if error.errno in fs.DISK_FULL_ERRORS or error.errno in fs.CANNOT_NOW_ERRORS:
                raise
            return False  # This file system does not support links.
        return True

    def _remake(self, source: Path, header: IndexHeader, target: Path) -> None:
        """Create a file with the proven entries, and slots computed from them.

        :raises OSError: if the disk is full; no new file is left then.
        """
        geometry, disk = self._geometry, self._disk
        beside = self._layout.scratch / f"{target.name}.{fs.pid()}.remade"
        disk.make_file(beside, geometry.file_bytes, self._layout.scratch)
        try:
            file = disk.open_file(beside)
            try:
                file.reserve(0, geometry.entry_position(header.next_entry))
                with fs.MappedFile(source) as mapped:
                    _fill(file, mapped, header, geometry)
                file.sync()
            finally:
                file.close()
            disk.move(beside, target)
        except BaseException:
            disk.remove_file(beside)
            raise

    def _resume_point_after(self) -> ResumePoint:
        if not self._proven:
            return ResumePoint(self._log.min_offset, 0)
        end_offset = self._proven[-1][1].end_offset
        count = 0
        for name, header, directory in reversed(self._proven):
            number = header.last_entry
            with fs.MappedFile(directory / name) as mapped:
                while number > 0:
                    entry = decode_entry(mapped.view, self._geometry, number)
                    if entry.physical_offset != end_offset:
                        break
                    count += 1
                    number -= 1
            if number > 0:
                break
        if end_offset < self._log.min_offset:
            return ResumePoint(self._log.min_offset, 0)
        return ResumePoint(end_offset, count)


def _fill(
    file: WritableFile, source: fs.MappedFile, header: IndexHeader, geometry: Geometry
) -> None:
    start, stop = geometry.entry_position(0), geometry.entry_position(header.next_entry)
    content, old_content = file.array(), source.array()
    content[start:stop] = old_content[start:stop]
    hashes = old_content[start:stop].view(ENTRY_LAYOUT.dtype)["key_hash"][1:].astype(np.int64)
    slots = np.zeros(geometry.slot_count, np.int32)
    # numpy keeps the last of several assignments to a slot, which is the newest entry.
    slots[hashes % geometry.slot_count] = np.arange(1, header.next_entry, dtype=np.int32)
    content[HEADER_BYTES:start].view(">i4")[:] = slots
    file.content[:HEADER_BYTES] = header.encode()
