"""The store of one followed broker: opens it, compares it with the master, and keeps its note.

Before the first append of a connection, the last record of the copy must have the same bytes at the
master. If the master's log ends before the copy's, or has other bytes there, it is another log: the
broker was restored from a backup, lost the end of its log, or started empty under the same name.
The copy is then moved aside, and a new one is started.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.errors import BadInput, CopyFailed
from rocketlens.model.message import Host
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tap_note import TapGap, TapNote, read_tap_note
from rocketlens.store.write.copy_append import CopyStore, prepare_copy
from rocketlens.store.write.message_store import StoreOptions, system_clock
from rocketlens.tap.masters import REPLACED, Master, directory_name
from rocketlens.wire.ha import LogBytes

MAX_REPLACED_COPIES: Final = 8
"""Copies of earlier logs of one broker; with more, it is not copied any more."""
_log: Final = logging.getLogger("rocketlens.tap")

Begin = Literal["earliest", "latest"] | int
"""The log file at which a new copy starts: first, last, or that with a physical offset."""

_EVERY_HOUR: Final = ";".join(f"{hour:02}" for hour in range(24))
_FULL_PERCENT: Final = 95
_NO_HOST: Final = Host("127.0.0.1", 0)
"""No record is written with this address."""
KEEP_ALL_HOURS: Final = 876_000
"""A hundred years."""


class LogReplaced(CopyFailed):
    """The master has another log than the copied one."""


class LogCopy:
    """The copy of one broker's log. For one event loop; threads of the store sync and index.

    ``store`` is None until :meth:`open`.
    """

    def __init__(
        self,
        home: Path,
        broker_name: str,
        *,
        begin: Begin = "earliest",
        retention_hours: int | None = None,
        retention_bytes: int = 0,
        disk: Disk | None = None,
        clock: Callable[[], int] = system_clock,
        threads: bool = True,
    ) -> None:
        self.broker_name: Final = broker_name
        self.layout: Final = StoreLayout(home / directory_name(broker_name))
        self.store: CopyStore | None = None
        self._begin: Final = begin
        self._hours: Final = KEEP_ALL_HOURS if retention_hours is None else retention_hours
        self._most_bytes: Final = retention_bytes
        self._disk: Final = disk or Disk()
        self._clock: Final = clock
        self._threads: Final = threads
        self._expected = (0, b"")
        self.note: TapNote | None = None

    @property
    def has_begun(self) -> bool:
        return self.layout.tap.is_file()

    def open(self, master: Master) -> CopyStore:
        """Open the store, or create one; return it.

        :raises CopyFailed: if the directory has a store that is not a copy of this broker's.
        :raises StoreLocked: if another process has it open.
        :raises BadInput: if the broker's configuration cannot be used.
        :raises OSError: if it cannot be read or written.
        """
        if self.store is not None:
            return self.store
        note = read_tap_note(self.layout)
        has_log = self.layout.commit_log.is_dir() and any(self.layout.commit_log.iterdir())
        if note is None and has_log:
            raise CopyFailed(
                f"{self.layout.root} has a store that is not a copy, or its note "
                f"{self.layout.tap} is missing: choose another --home, or move the store away"
            )
        if note is None:
            before = tuple(each.name for each in self.replaced_copies())
            begin = self._begin_offset(master, "earliest" if before else self._begin)
            note = TapNote(self.broker_name, master.address, begin, replaced=before)
        if note.broker_name != self.broker_name:
            raise CopyFailed(f"{self.layout.root} is the copy of broker {note.broker_name}")
        config = master.store_config(
            fileReservedTime=self._hours,
            fileReservedBytes=self._most_bytes,
            deleteWhen=_EVERY_HOUR,
            cleanFileForciblyEnable=False,
            diskSpaceWarningLevelRatio=_FULL_PERCENT,
        )
        self._write(replace(note, address=master.address))
        prepare_copy(self.layout, config, note.begin_offset, self._disk)
        options = StoreOptions(_NO_HOST, threads=self._threads)
        self.store = CopyStore(self.layout, config, options, disk=self._disk, clock=self._clock)
        return self.store

    def replaced_copies(self) -> list[Path]:
        """Return the directories with copies of earlier logs of the broker, oldest first."""
        root = self.layout.root
        names = (each.name for each in fs.entries(root.parent))
        return sorted(
            root.with_name(name) for name in names if name.startswith(root.name + REPLACED)
        )

    def _begin_offset(self, master: Master, begin: Begin) -> int:
        least, size = master.min_offset, master.segment_bytes
        if begin == "earliest":
            return least - least % size
        last = max(master.end_offset - 1, 0)
        wanted = last if begin == "latest" else begin
        if not least <= wanted <= master.end_offset:
            raise BadInput(
                f"--from {begin}: the log of broker {self.broker_name} has physical offsets "
                f"{least} to {master.end_offset}"
            )
        return wanted - wanted % size

    def start_offset(self, master: Master) -> int:
        """Return the offset to request from the master: that of the last record of the copy.

        Log that the master deleted before it was copied becomes a gap. The copy is synced first,
        because the requested offset also acknowledges the log before it.

        :raises LogReplaced: if the master's log ends before the copy does.
        :raises StoreFailed: if the copy could not be synced.
        """
        store = self._open_store()
        # Queues, too: a tap that is killed repeatedly must not rebuild them each time.
        store.flush()
        if store.failure is not None:
            raise store.failure
        store.drop_received()
        if master.end_offset < store.end_offset:
            raise LogReplaced(
                f"the log of broker {self.broker_name} ends at physical offset "
                f"{master.end_offset}, and the copy at {store.end_offset}"
            )
        last = store.last_appended
        if master.min_offset > store.position:
            self._skip_missing(store, master.min_offset)
            last = None
        self._expected = (store.position, b"")
        if last is not None and last.physical_offset >= master.min_offset:
            # With the filler after it, if there is one.
            at = last.physical_offset
            self._expected = (at, store.log_bytes(at))
        at, expected = self._expected
        if not at and master.end_offset > master.segment_bytes:
            # A request for offset 0 would start at the last segment. Byte 0 of a log is always 0:
            # the first byte of the size of a record, which has less than 16 MiB.
            if not expected:
                store.receive(b"\0")
            self._expected = (1, expected[1:])
        return self._expected[0]

    def _skip_missing(self, store: CopyStore, stop: int) -> None:
        start = store.position
        assert self.note is not None  # noqa: S101 - set by `open`
        note = self.note
        gap = TapGap(start, stop, self._clock())
        # Before the log continues: a reader must never see a gap without its reason.
        self._write(replace(note, gaps=(*note.gaps, gap)[-limits.MAX_DAMAGE_REPORTS :]))
        store.continue_at(stop)
        _log.error(
            "broker %s: physical offsets %d to %d are missing: %s",
            self.broker_name,
            start,
            stop,
            gap,
        )

    def take(self, received: list[LogBytes]) -> None:
        """Append received log, after comparing it with the copy.

        :raises LogReplaced: if the master has other bytes than the copy.
        :raises CopyFailed: if the log does not continue at the end of the copy.
        :raises StoreFull, StoreBusy: if the store cannot append now; the bytes are kept.
        """
        store = self._open_store()
        for log in received:
            store.receive(self._unknown_part(store, log))
        store.append_received()

    def _unknown_part(self, store: CopyStore, log: LogBytes) -> memoryview:
        """Return the bytes that the copy does not have; compare the others."""
        at, expected = self._expected
        if not expected:
            if log.physical_offset != store.received_offset:
                raise CopyFailed(
                    f"broker {self.broker_name} sent physical offset {log.physical_offset}, "
                    f"and the copy ends at {store.received_offset}"
                )
            return log.body
        if log.physical_offset != at:
            raise CopyFailed(
                f"broker {self.broker_name} sent physical offset {log.physical_offset}, not {at}"
            )
        count = min(len(log.body), len(expected))
        if log.body[:count] != expected[:count]:
            raise LogReplaced(
                f"broker {self.broker_name} and the copy have different records at physical "
                f"offset {at}"
            )
        self._expected = (at + count, expected[count:])
        return log.body[count:]

    @property
    def is_compared(self) -> bool:
        """True if the master sent all requested bytes of the copy, and they were equal."""
        return not self._expected[1]

    def put_aside(self) -> None:
        """:raises CopyFailed: if the maximum number of copies is kept.
        :raises OSError: if the store cannot be moved.
        """
        root, kept = self.layout.root, self.replaced_copies()
        if len(kept) >= MAX_REPLACED_COPIES:
            raise CopyFailed(
                f"{len(kept)} copies of earlier logs of the broker are kept, the maximum: move or "
                f"delete {kept[0]} and those like it"
            )
        kept_bytes = sum(file.stat().st_size for each in kept for file in each.glob("commitlog/*"))
        if 0 < self._most_bytes <= kept_bytes:
            raise CopyFailed(
                f"{kept_bytes} bytes of copies of earlier logs of the broker are kept, and "
                f"{self._most_bytes} are allowed: move or delete {kept[0]} and those like it"
            )
        self.close(abruptly=False)
        number = 1
        while (aside := root.with_name(f"{root.name}{REPLACED}{number:04}")).exists():
            number += 1
        self._disk.move(root, aside)
        self._disk.sync_directory(root.parent)
        _log.error(
            "broker %s has another log than before: the copy of the old one is kept in %s",
            self.broker_name,
            aside,
        )
        self.note = None

    def note_progress(self, master: Master | None, problem: str) -> None:
        """:raises OSError: if the note cannot be written."""
        note, store = self.note, self.store
        if note is None or store is None:
            return
        last = store.last_appended
        self._write(
            replace(
                note,
                address=note.address if master is None else master.address,
                position=store.position,
                master_end_offset=max(
                    note.master_end_offset if master is None else master.end_offset, store.position
                ),
                last_record_ms=0 if last is None else last.store_timestamp_ms,
                written_ms=self._clock(),
                problem=problem,
            )
        )

    def _write(self, note: TapNote) -> None:
        self._disk.make_directory(self.layout.own)
        self._disk.write_durably(self.layout.tap, note.encode())
        self.note = note

    def _open_store(self) -> CopyStore:
        assert self.store is not None  # noqa: S101 - the caller opened it
        return self.store

    def close(self, *, abruptly: bool) -> None:
        """Close the store; ``abruptly``: without a final save, like a killed process."""
        store, self.store = self.store, None
        if store is not None:
            (store.close_abruptly if abruptly else store.close)()
