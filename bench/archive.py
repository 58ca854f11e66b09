"""An archive: written from a store by Spark, then searched by key.

The archive has ten days, and then fifty days with as many messages; a message has two keys. A
look-up names neither topic nor day. DuckDB does the same look-ups in plain Parquet files, one a
day, in order of arrival: keys are unordered there, so statistics exclude no row group. DuckDB uses
all cores. Files are in the page cache. Look-ups are compared by CPU of all threads. The cost of
archiving is CPU of the driver and of Spark's workers, without the JVM.
"""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bench.history import Row
from bench.report import goal, table
from bench.synthetic import SyntheticStore
from rocketlens.archive.archive import open_archive
from rocketlens.archive.copied import QueueRange, join_ranges
from rocketlens.archive.files import DataFile, ShareFiles
from rocketlens.archive.journal import ArchiveTables, next_batch
from rocketlens.model.arrow import schema
from rocketlens.query.options import ContentOptions

RATE, CORES, PROCESS_SECONDS, OPEN_SECONDS = 250_000, 2, 0.6, 0.02
DAYS_RATIO, DUMP_RATIO = 1.5, 10.0
MESSAGES, QUICK_MESSAGES = 10_000_000, 500_000
DAYS, MANY_DAYS = 10, 50
DAY_MS = 86_400_000
LOG_BYTES = 387
"""What a message takes in the log that it would have been archived from."""
SCANS: dict[str, ContentOptions] = {
    "where amount > 900": {"where": "amount > 900"},
    "where key = 'nowhere'": {"where": "key = 'nowhere'"},
    "where body.$.status = 'nowhere'": {"where": "body.$.status = 'nowhere'"},
    "where body.$.order > 1e12": {"where": "body.$.order > 1e12"},
    "grep nowhere": {"grep": "nowhere"},
    "grep no.?where": {"grep": "no.?where"},
}
SCANNED_DAYS = 3
SCAN_RATE, SCAN_GOAL = 300e6, "where amount > 900"
START_MS = 1_790_000_000_000 // DAY_MS * DAY_MS
ROWS = 16_384
LOOK_UPS, OPENING_LOOK_UPS, DUMP_LOOK_UPS = 250, 200, 7
ARCHIVE = """
import os, sys, time
from rocketlens.archive.journal import ArchiveTables
from rocketlens.pipeline import jobs
from rocketlens.pipeline.archive import ArchivedStore, archive_next, write_share
from rocketlens.pipeline.session import start
spark = start("local[2]")
used = {}
def write(task):
    return write_share(task), os.getpid(), time.process_time()
def run(tasks):
    written = []
    for share, worker, seconds in jobs.run(spark.sparkContext, "archive", tasks, write):
        used[worker] = max(used.get(worker, 0), seconds)
        written.append(share)
    return written
tables = ArchiveTables(sys.argv[2], create=True)
source = ArchivedStore(sys.argv[1], "broker-a")
count, began, used[0] = 0, time.perf_counter(), -time.process_time()
while batch := archive_next(tables, source, run):
    count += batch.messages
seconds = time.perf_counter() - began
used[0] += time.process_time()
print(count, seconds, sum(used.values()))
"""
FIND = """
import sys, rocketlens
with rocketlens.open_archive(sys.argv[1]) as archive:
    assert len(archive.find(sys.argv[2]).messages) == 1
"""


class Archived(NamedTuple):
    """Messages archived per second, and CPU seconds for each."""

    rate: float
    cpu_seconds: float


class LookUps(NamedTuple):
    """Seconds of a look-up as a whole process, and CPU seconds in an open archive."""

    keys: int
    process_seconds: float
    open_cpu: list[float]
    dump_cpu: list[float]

    @property
    def open_seconds(self) -> float:
        """The median in an open archive."""
        return median(self.open_cpu)


def report(directory: Path, store: SyntheticStore, *, is_quick: bool) -> Iterator[str | Row]:
    """Measure, and return the lines of the report."""
    archived = archive_with_spark(store, directory / "written")
    messages = QUICK_MESSAGES if is_quick else MESSAGES
    found = look_ups(directory / "looked-up", messages, DAYS)
    rates = scan_rates(directory / "looked-up", messages)
    scanned = {name: median(values) for name, values in rates.items()}
    of_many = look_ups(directory / "many-days", messages, MANY_DAYS)
    rows = [
        (
            f"archived with local[{CORES}], messages of {store.record_bytes} bytes/s",
            f"{archived.rate:,.0f}",
        ),
        ("CPU for each of them", f"{archived.cpu_seconds * 1e6:.1f} us"),
        (f"one of {found.keys:,} keys, whole process", f"{found.process_seconds:.2f} s"),
        ("the same in an open archive, CPU", f"{found.open_seconds * 1000:.1f} ms"),
        (f"with {MANY_DAYS} days, not {DAYS}", f"{of_many.open_seconds * 1000:.1f} ms"),
        ("with DuckDB, in Parquet as it is dumped", f"{median(found.dump_cpu) * 1000:.1f} ms"),
        *(
            (f"all searched by CPU, {name}", f"{rate / 1e6:,.0f} MB of log/s")
            for name, rate in scanned.items()
        ),
    ]
    yield from table(("archive", ""), rows)
    yield Row(f"archive look-up, {DAYS} days, cpu ms", [each * 1000 for each in found.open_cpu])
    yield Row(
        f"archive look-up, {MANY_DAYS} days, cpu ms", [each * 1000 for each in of_many.open_cpu]
    )
    for name, values in rates.items():
        yield Row(f"archive searched, {name}, MB of log/s", [each / 1e6 for each in values])
    of_cores = CORES / archived.cpu_seconds
    text = f"{CORES} cores archive {of_cores:,.0f} messages/s by their CPU, wanted {RATE:,}"
    yield goal(is_met=of_cores >= RATE, text=text)
    text = f"a process finds a key in {found.process_seconds:.2f} s, wanted {PROCESS_SECONDS}"
    yield goal(is_met=found.process_seconds <= PROCESS_SECONDS, text=text)
    text = (
        f"an open archive in {found.open_seconds * 1000:.1f} ms, wanted {OPEN_SECONDS * 1000:.0f}"
    )
    yield goal(is_met=found.open_seconds <= OPEN_SECONDS, text=text)
    ratio = of_many.open_seconds / found.open_seconds
    text = f"{MANY_DAYS} days take {ratio:.2f} times as long as {DAYS}, wanted {DAYS_RATIO}"
    yield goal(is_met=ratio <= DAYS_RATIO, text=text)
    ratio = median(found.dump_cpu) / found.open_seconds
    rate = scanned[SCAN_GOAL]
    text = (
        f"a core searches {rate / 1e6:,.0f} MB of log/s, {SCAN_GOAL}, wanted {SCAN_RATE / 1e6:.0f}"
    )
    yield goal(is_met=rate >= SCAN_RATE, text=text)
    if not is_quick:
        # A dump is read whole: with few messages it is quick.
        text = f"a key is found {ratio:.0f} times as fast as by DuckDB, wanted {DUMP_RATIO:.0f}"
        yield goal(is_met=ratio >= DUMP_RATIO, text=text)


def archive_with_spark(store: SyntheticStore, target: Path) -> Archived:
    """Archive a store with ``local[2]``, without the start of Spark."""
    done = subprocess.run(
        [sys.executable, "-c", ARCHIVE, str(store.path), str(target)],
        check=True,
        capture_output=True,
        text=True,
    )
    count, seconds, cpu_seconds = done.stdout.split()
    if int(count) != store.messages:
        raise AssertionError(f"{count} of {store.messages} messages were archived")
    return Archived(int(count) / float(seconds), float(cpu_seconds) / int(count))


def look_ups(root: Path, messages: int, days: int) -> LookUps:
    """Write an archive of `message_count` messages, and look up some of their keys."""
    write_archive(root, messages, days)
    chosen = random.Random(1).sample(range(messages), LOOK_UPS)
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", FIND, str(root), key(chosen[0])], check=True)
    process_seconds = time.perf_counter() - began
    with open_archive(root) as archive:
        seconds = []
        for number in chosen:
            began = time.process_time()
            answer = archive.find(key(number))
            seconds.append(time.process_time() - began)
            if len(answer) != 1:
                raise AssertionError(f"{key(number)} finds {len(answer)} messages")
    # The first ones open the files of each day.
    dump = list(_dump_look_ups(root, chosen[:DUMP_LOOK_UPS])) if days == DAYS else []
    return LookUps(2 * messages, process_seconds, seconds[OPENING_LOOK_UPS:], dump)


def scan_rates(root: Path, messages: int) -> dict[str, list[float]]:
    """Scan some days without a match; return bytes of log per CPU second."""
    rates: dict[str, list[float]] = {name: [] for name in SCANS}
    with open_archive(root) as archive:
        for day in range(SCANNED_DAYS):
            begin = START_MS + day * DAY_MS
            for name, content in SCANS.items():
                began = time.process_time()
                scan = archive.scan("BenchTopic", begin, begin + DAY_MS - 1, **content)
                if next(iter(scan), None) is not None:
                    raise AssertionError(f"{name} finds something")
                rates[name].append(messages // DAYS * LOG_BYTES / (time.process_time() - began))
    return rates


def _dump_look_ups(root: Path, chosen: list[int]) -> Iterator[float]:
    """Write the messages as plain files; yield CPU seconds of DuckDB look-ups."""
    import duckdb

    dump = root / "dump"
    dump.mkdir()
    for number, path in enumerate(sorted(root.glob("messages/*/*.parquet"))):
        pq.write_table(pq.read_table(path, partitioning=None), dump / f"{number}.parquet")
    connection = duckdb.connect()
    question = f"select * from read_parquet('{dump}/*.parquet') where list_contains(keys, ?)"  # noqa: S608
    for number in chosen:
        began = time.process_time()
        rows = connection.execute(question, [key(number)]).fetchall()
        yield time.process_time() - began
        if len(rows) != 1:
            raise AssertionError(f"{key(number)} finds {len(rows)} rows")


def key(number: int) -> str:
    return f"order-{number:010d}"


def _unique_key(number: int) -> str:
    return f"{number:032X}"


def _properties(number: int) -> list[tuple[str, str]]:
    amount = str(number * 7 % 900)
    return [
        ("KEYS", key(number)),
        ("TAGS", "paid"),
        ("UNIQ_KEY", _unique_key(number)),
        ("amount", amount),
    ]


def _body(number: int) -> bytes:
    begin = b'{"order": %d, "status": "paid", "note": "' % number
    return begin + b"a" * (198 - len(begin)) + b'"}'


def write_archive(root: Path, messages: int, days: int) -> None:
    """Write an archive with messages spread over the days, one batch a day."""
    tables = ArchiveTables(str(root), create=True)
    files: list[DataFile] = []
    ranges: list[QueueRange] = []
    of_day = messages // days
    for day in range(days):
        share = ShareFiles(tables.location, "DefaultCluster", "broker-a")
        share.add(_batches(day * of_day, of_day, START_MS + day * DAY_MS))
        files += share.close()
        ranges += share.ranges
    batch = next_batch(
        "DefaultCluster/broker-a",
        None,
        ({}, {}),
        files,
        topics=["BenchTopic"],
        brokers=["DefaultCluster/broker-a"],
        lost=[],
        run=tables.run,
        chosen=[],
        asked_ms=START_MS + days * DAY_MS,
        queues=join_ranges(ranges),
        behind=[],
    )
    tables.commit(batch)


def _batches(first: int, count: int, start_ms: int) -> Iterator[pa.RecordBatch]:
    constant = {
        "topic": "BenchTopic",
        "tags": "paid",
        "born_host": "10.0.0.1:5555",
        "store_host": "127.0.0.1:10911",
    }
    columns = schema()
    for start in range(first, first + count, ROWS):
        numbers = range(start, min(start + ROWS, first + count))
        rows = len(numbers)
        made = {
            "keys": pa.array([[key(number)] for number in numbers], columns.field("keys").type),
            "unique_key": pa.array(list(map(_unique_key, numbers))),
            "queue_offset": pa.array(numbers, pa.int64()),
            "physical_offset": pa.array([number * LOG_BYTES for number in numbers], pa.int64()),
            "store_timestamp_ms": pa.array(
                [start_ms + (number - first) * DAY_MS // count for number in numbers], pa.int64()
            ),
            "properties": pa.array(
                list(map(_properties, numbers)), columns.field("properties").type
            ),
            "body": pa.array(list(map(_body, numbers)), pa.binary()),
        }
        for field in columns:
            if field.name in constant:
                made[field.name] = pa.repeat(pa.scalar(constant[field.name], field.type), rows)
            elif field.name not in made:
                is_number = pa.types.is_integer(field.type)
                made[field.name] = (
                    pa.repeat(pa.scalar(0, field.type), rows)
                    if is_number
                    else pa.nulls(rows, field.type)
                )
        yield pa.RecordBatch.from_arrays([made[each] for each in columns.names], schema=columns)
