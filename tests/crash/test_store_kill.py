"""A store whose process is killed at any moment has every message that it acknowledged."""

import random
import subprocess
import sys
from itertools import count, takewhile
from pathlib import Path

import pytest

import rocketlens
from rocketlens.store.write.message_store import MessageStore
from tests.crash.store_writer import CONFIG, OPTIONS
from tests.support.written_stores import records_of

REPOSITORY = Path(__file__).parents[2]
SEED = 20_240_506


def run_and_kill(path, first, seed, milliseconds):
    """Run a writer and kill it so long after it was ready; gives what it acknowledged."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.store_writer", str(path), str(first), str(seed)],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    with writer:
        assert writer.stdout.readline() == b"ready\n"
        try:
            writer.wait(timeout=milliseconds / 1000)
        except subprocess.TimeoutExpired:
            writer.kill()
        output = writer.stdout.read()
    assert writer.returncode == -9
    whole = output[: output.rfind(b"\n") + 1]
    return [tuple(map(int, line.split())) for line in whole.splitlines()]


def check(path, acknowledged, seed):
    """Compare a store, as a reader finds it, with what was acknowledged."""
    with rocketlens.open_store(path) as reader:
        for number, physical_offset, queue_id, queue_offset in acknowledged:
            by_key = reader.query_message("Orders", f"k{number}", max_num=None)
            by_unique_key = reader.view_message("Orders", f"U{number:06}")
            by_queue = reader.query_by_queue_offset("Orders", queue_id, queue_offset)
            by_id = reader.view_message(by_unique_key.offset_msg_id)
            found = [m.physical_offset for m in (*by_key.messages, by_unique_key, by_queue, by_id)]
            assert found == [physical_offset] * 4, (number, seed)
            assert by_key.complete


def check_no_duplicates(records, seed):
    """Every message is in the log once, and its queue offsets have no gap."""
    keys = [record.properties for record in records]
    assert len(set(keys)) == len(keys), seed
    for queue_id in range(3):
        offsets = [r.queue_offset for r in records if r.queue_id == queue_id]
        assert offsets == list(range(len(offsets))), seed


def has_rolled(path, cycles):
    """Return whether there are more segments and index files than cycles."""
    return all(len(list((path / name).iterdir())) > cycles for name in ("commitlog", "index"))


@pytest.mark.parametrize("cycles", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_random_nothing_acknowledged_is_lost_and_nothing_is_there_twice(tmp_path, cycles):
    randomness = random.Random(SEED)
    acknowledged = []
    first = 0
    # A machine that is busy with other work writes less in each: then there are more of them, and
    # longer ones, as a start that always ends before its index has grown gets nowhere.
    for cycle in takewhile(lambda n: n < cycles or not has_rolled(tmp_path, cycles), count()):
        seed = SEED + cycle
        done = run_and_kill(tmp_path, first, seed, randomness.randrange(5, 400) << cycle // cycles)
        acknowledged += done
        # The last ones were under way when the process died; the rest is looked for in the end.
        check(tmp_path, done[-40:], seed)
        records = records_of(tmp_path)
        check_no_duplicates(records, seed)
        # Messages that were stored and not acknowledged count, too.
        first = 1 + max((int(record.properties[10:16]) for record in records), default=-1)
    with MessageStore(tmp_path, CONFIG, OPTIONS) as store:
        assert store.recovered.damage == []
        assert store.recovered.cut is None
    assert not (tmp_path / "abort").exists()
    check(tmp_path, acknowledged[:: max(len(acknowledged) // 2000, 1)], SEED)
    check_index_has_each_entry_once(tmp_path)


def check_index_has_each_entry_once(path):
    """Compare the entries of all index files with those of a builder that was never killed."""
    from rocketlens.formats.index_file import ENTRY, index_hashes

    expected = [
        (key_hash, record.physical_offset)
        for record in records_of(path)
        for key_hash in index_hashes(record, with_tags=True)
    ]
    found = []
    for file in sorted((path / "index").iterdir()):
        content = file.read_bytes()
        last = int.from_bytes(content[36:40], "big")
        start = CONFIG.geometry.entry_position(1)
        stop = CONFIG.geometry.entry_position(last)
        found += [entry[:2] for entry in ENTRY.iter_unpack(content[start:stop])]
    assert found == expected
