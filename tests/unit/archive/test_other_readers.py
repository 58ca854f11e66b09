"""Programs that know nothing of RocketLens read an archive, as its guide shows."""

import re
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.maintenance import compact, expire, write_merged
from tests.support.archives import DAY_MS, archive_store
from tests.support.synthetic import START_MS, record, write_log

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "archive.md"
RECIPES = re.findall(r"(?ms)^### (\w+)\n.*?^```python\n(.*?)^```$", GUIDE.read_text("utf-8"))
COMPRESSED = 1
BODIES = [b"plain", "城市".encode(), b"\xff\x00binary", b'{"a": 1}', b""]


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """An archive of 4 days and 3 batches, of which the first day is deleted and others are one
    file each.
    """
    directory = tmp_path_factory.mktemp("readers")
    records = []
    for number in range(60):
        body, stored_ms = BODIES[number % len(BODIES)], START_MS + DAY_MS * (number % 4) + number
        one = record(number, body=body, store_timestamp_ms=stored_ms, TAGS="A", city=f"c-{number}")
        if number % 7 == 0:
            one = replace(one, sys_flag=COMPRESSED, body=zlib.compress(body))
        records.append(one)
    for stop in (20, 40, 60):
        write_log(directory / "store", records[:stop], 1 << 16)
        archive_store(directory / "lake", directory / "store")
    afterwards = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(days=3)
    tables = ArchiveTables(str(directory / "lake"))
    assert compact(tables, lambda tasks: list(map(write_merged, tasks)), afterwards)
    expire(tables, 2, afterwards)
    return directory / "lake"


def test_the_guide_has_a_recipe_for_each_reader():
    assert [name for name, _ in RECIPES] == ["DuckDB", "Polars"]


@pytest.mark.parametrize(("name", "code"), RECIPES)
def test_a_recipe_has_the_rows_that_our_own_reader_has(lake, name, code):
    with rocketlens.open_archive(lake) as archive:
        expected = {
            each.queue_offset: (
                (each.topic, each.keys, each.unique_key, each.store_time),
                (each.body, text_of(each.body)),
            )
            for each in archive.scan()
        }
    assert 30 <= len(expected) < 60
    names: dict = {}
    exec(compile(code.replace("/lake/rocketmq", str(lake)), name, "exec"), names)
    rows = names["rows"].to_dicts() if name == "Polars" else names["rows"].to_pylist()
    found = {
        row["queue_offset"]: (
            (row["topic"], tuple(row["keys"]), row["unique_key"], row["store_time"]),
            (row["body"], row.get("body_text", text_of(row["body"]))),
        )
        for row in rows
    }
    assert found == expected
    assert len(rows) == len(expected)


def text_of(body):
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
