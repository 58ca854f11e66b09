"""Rates of the kernels alone, on one core, over a log in memory.

`measure` returns the rates. `python -m bench.kernels` prints them.
"""

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketlens.formats.compiled import index, scan
from rocketlens.formats.compiled.record_constants import FULL
from rocketlens.formats.index_file import ChainCheck
from rocketlens.formats.rows import ROW_BYTES, IndexEntries, Rows, scan_rows

RECORD_BYTES = 200
ENTRIES_PER_RECORD = 3
"""A unique key and two keys."""
DEFAULT_LOG_BYTES = 1 << 30
DEFAULT_SLOT_COUNT = 5_000_000
DEFAULT_ENTRY_COUNT = 20_000_000
ROWS_AT_ONCE = 4096

TOPIC = b"OrderTopic"
PROPERTIES = (
    b"UNIQ_KEY\x010A0000050000123456789ABC00000000\x02"
    b"KEYS\x01order-0000000 user-000000\x02TAGS\x01A\x02"
)


class KernelRates(NamedTuple):
    """Millions a second, best of several runs; log and entries stay in memory."""

    records_scanned: float
    records_scanned_with_entries: float
    entries_made: float
    """The same run, counted in index entries."""
    entries_built: float
    """Into an index file of the default size, keys without any order."""
    entries_checked: float
    entries_made_and_built: float
    """Scan, entries and index files in one thread: what a rebuild costs without reading files."""
    records_walked: float
    bodies_checked: float
    import_seconds: float
    """Loading numpy and the first kernel in a process of its own."""


def make_log(log_bytes: int = DEFAULT_LOG_BYTES) -> NDArray[np.uint8]:
    """Make a log of 200-byte records at physical offset 0, each with its own three keys."""
    body = b"x" * (RECORD_BYTES - 91 - len(TOPIC) - len(PROPERTIES))
    head = struct.pack(">iiiiiqqiq", RECORD_BYTES, -626843481, 0, 1, 0, 0, 0, 0, 1_700_000_000_000)
    hosts = struct.pack(">IiqIi", 0x7F000001, 40000, 0, 0x7F000001, 10911)
    record = head + hosts + struct.pack(">iqi", 0, 0, len(body)) + body
    record += (
        struct.pack(">b", len(TOPIC)) + TOPIC + struct.pack(">h", len(PROPERTIES)) + PROPERTIES
    )
    count = log_bytes // RECORD_BYTES
    log = np.tile(np.frombuffer(record, np.uint8), count).reshape(count, RECORD_BYTES)
    numbers = np.arange(count, dtype=np.int64)
    put_big_endian(log, 20, numbers)
    put_big_endian(log, 28, numbers * RECORD_BYTES)
    put_big_endian(log, 56, 1_700_000_000_000 + numbers // 5)
    put_digits(log, record.index(b"00000000\x02"), 8, numbers)
    put_digits(log, record.index(b"order-") + 6, 7, numbers * 7_919)
    put_digits(log, record.index(b"user-") + 5, 6, numbers * 31)
    return log.reshape(-1)


def put_big_endian(log: NDArray[np.uint8], at: int, values: NDArray[np.int64]) -> None:
    """Write one i64 into every record."""
    log[:, at : at + 8] = values.astype(">i8").view(np.uint8).reshape(-1, 8)


def put_digits(log: NDArray[np.uint8], at: int, width: int, values: NDArray[np.int64]) -> None:
    """Write the last ``width`` decimal digits of one number into every record."""
    for place in range(width):
        log[:, at + width - 1 - place] = 48 + values // 10**place % 10


def best_seconds(run: Callable[[], object], runs: int) -> float:
    """Return the shortest of several runs, without the first."""
    run()
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def scan_all(log: NDArray[np.uint8]) -> Iterator[Rows]:
    """Scan the whole log in pieces, as jobs do."""
    memory = memoryview(bytearray(ROWS_AT_ONCE * ROW_BYTES))
    position, reason = 0, FULL
    while reason == FULL:
        rows, position, reason = scan_rows(log.data, 0, position, len(log), memory)
        yield rows


def entries_of(log: NDArray[np.uint8]) -> Iterator[IndexEntries]:
    """Scan the whole log in pieces, and make the index entries of each."""
    for rows in scan_all(log):
        yield rows.index_entries(with_tags=False)


class IndexFileSpace:
    """Memory for one index file, reused by all runs."""

    def __init__(self, slot_count: int, entry_count: int) -> None:
        self.slot_count = slot_count
        self.capacity = entry_count - 1
        self.slots = np.zeros(slot_count * 4, np.uint8)
        self.entries = np.zeros(entry_count * 20, np.uint8)
        self.entries[:] = 0

    def build(self, parts: Iterable[IndexEntries]) -> None:
        """Build as many files as the entries need, one over the other."""
        first = self.capacity + 1
        for new in parts:
            count = len(new.hashes)
            if first + count > self.capacity:
                self.slots[:] = 0
                first = 1
            index.build(*new, first, 0, self.slot_count, self.slots, self.entries)
            first += count

    def check(self, last_entry: int) -> ChainCheck:
        """Check the file built last."""
        newest = np.zeros(self.slot_count, np.int32)
        checked = index.check(self.slots, self.entries, self.slot_count, last_entry, newest)
        return ChainCheck(*checked)


def entries_without_order(count: int) -> IndexEntries:
    """Make entries whose slots follow no order, which is the hardest for the memory."""
    numbers = np.arange(count, dtype=np.int64)
    hashes = np.random.default_rng(1).integers(0, 2**31, count).astype(np.int32)
    return IndexEntries(hashes, numbers * 70, 1_700_000_000_000 + numbers // 10)


def measure_import() -> float:
    """Time import and first call of a kernel in a new process, without the interpreter's start."""
    import subprocess
    import sys

    program = (
        "import time; started = time.perf_counter()\n"
        "import numpy as np\n"
        "from rocketlens.formats.compiled import scan\n"
        "scan.find_start(np.zeros(9, np.uint8), 0, 0, 9)\n"
        "print(time.perf_counter() - started)\n"
    )
    times = [
        float(
            subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        )
        for _ in range(4)
    ]
    return min(times)


def measure(log_bytes: int = DEFAULT_LOG_BYTES, runs: int = 5) -> KernelRates:
    """Measure every rate; about 3.5 times ``log_bytes`` of memory, half a minute for a GiB."""
    log = make_log(log_bytes)
    records = len(log) // RECORD_BYTES
    made = records * ENTRIES_PER_RECORD
    space = IndexFileSpace(DEFAULT_SLOT_COUNT, DEFAULT_ENTRY_COUNT)
    unordered = entries_without_order(min(made, space.capacity))
    built = len(unordered.hashes)

    scan_seconds = best_seconds(lambda: sum(map(len, scan_all(log))), runs)
    entry_seconds = best_seconds(lambda: sum(map(len, entries_of(log))), runs)
    both_seconds = best_seconds(lambda: space.build(entries_of(log)), runs)
    build_seconds = best_seconds(lambda: space.build([unordered]), runs)
    check_seconds = best_seconds(lambda: space.check(built), runs)
    walk_seconds = best_seconds(lambda: scan.walk(log, 0, 0, len(log)), runs)
    memory = memoryview(bytearray(min(records, 1_000_000) * ROW_BYTES))
    rows, *_ = scan_rows(log.data, 0, 0, len(log), memory)
    crc_seconds = best_seconds(rows.sound, runs)
    return KernelRates(
        records_scanned=records / scan_seconds / 1e6,
        records_scanned_with_entries=records / entry_seconds / 1e6,
        entries_made=made / entry_seconds / 1e6,
        entries_built=built / build_seconds / 1e6,
        entries_checked=built / check_seconds / 1e6,
        entries_made_and_built=made / both_seconds / 1e6,
        records_walked=records / walk_seconds / 1e6,
        bodies_checked=len(rows) / crc_seconds / 1e6,
        import_seconds=measure_import(),
    )


if __name__ == "__main__":
    for name, value in measure()._asdict().items():
        print(f"{name.replace('_', ' '):32} {value:8.2f}")
