"""Bodies are archived decoded, too, where that is asked for."""

from collections import Counter

import pyarrow.parquet as pq
import pytest

import rocketlens
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.maintenance import compact, write_merged
from rocketlens.archive.tables import DECODED
from rocketlens.decode.rules import BodyRules
from tests.support.archives import archive_store
from tests.support.synthetic import record, write_log

RULES = """
[[body]]
topic = "Topic"
format = "avro"
"""


def decoded_rows(root):
    """Return key and decoded columns of each message, as other programs read its files."""
    tables = ArchiveTables(str(root))
    assert tables.is_decoded
    for each in tables.files("messages"):
        for row in pq.read_table(tables.path(each.table, each.path), partitioning=None).to_pylist():
            yield (*row["keys"], *(row.get(name) for name in DECODED))


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_bodies_are_decoded_as_commands_show_them_and_answers_are_as_without(
    golden, tmp_path, version
):
    store, rules = golden(version).store, BodyRules()
    archive_store(tmp_path, store, body_rules=rules)
    with rocketlens.open_store(store) as opened:
        messages = sorted(opened.scan(), key=repr)
    shown = Counter()
    for message in messages:
        body = rules.decode(message)
        text = body.as_json() or body.text
        # Halves of pairs are no text to other programs.
        text = None if text is None else text.encode("utf-8", "replace").decode("utf-8")
        shown[(*message.keys, body.format, text, body.error)] += 1
    # The archive has messages of RocketMQ's own topics, too.
    assert not shown - Counter(decoded_rows(tmp_path))
    with rocketlens.open_archive(tmp_path) as archive:
        assert sorted(archive.scan(), key=repr) == messages


def test_what_was_archived_before_has_no_decoded_bodies_and_stays_so_when_it_is_compacted(tmp_path):
    bodies = [b'{"n": 1}', b"text", b"\xff\xfe\xfd", b'"\xed\xa0\x80"']
    store, lake, rules = tmp_path / "store", tmp_path / "lake", tmp_path / "rules.toml"
    rules.write_text(RULES)
    written = [record(number, body=bodies[number % 4]) for number in range(12)]
    for count, body_rules in ((4, None), (8, BodyRules()), (12, BodyRules.from_file(rules))):
        write_log(store, written[:count], 1 << 14)
        archive_store(lake, store, body_rules=body_rules)
    rows = sorted(decoded_rows(lake), key=lambda row: int(row[0][4:]))
    assert [row[1:] for row in rows[:4]] == [(None, None, None)] * 4
    assert rows[4][1:] == ("json", bodies[0].decode(), None)
    assert rows[5][1:] == ("text", "text", None)
    assert rows[6][1:] == ("binary", None, None)
    assert [row[1] for row in rows[8:10]] == ["json", "text"]
    assert all(row[3].startswith("rule for Topic: ") for row in rows[8:])
    assert compact(ArchiveTables(str(lake)), lambda tasks: list(map(write_merged, tasks)))
    assert sorted(decoded_rows(lake), key=lambda row: int(row[0][4:])) == rows
    # Without rules it goes on as before.
    write_log(store, [*written, record(12)], 1 << 14)
    archive_store(lake, store)
    assert len(list(decoded_rows(lake))) == 13
    with rocketlens.open_archive(lake) as archive:
        assert [each.body for each in archive.scan()] == [*(each.body for each in written), b"body"]
