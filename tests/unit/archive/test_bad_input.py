"""What is odd or damaged costs no other message and is named; bodies are decoded if asked for."""

import shutil
import zlib
from collections import Counter

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.maintenance import compact, write_merged
from rocketlens.archive.tables import DECODED
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import ArchiveError
from rocketlens.formats.body_compression import COMPRESSED
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH
from tests.support.archives import archive_store
from tests.support.synthetic import record, write_log

SURROGATE = b"\xed\xa0\xbd"
"""Half of an emoji, as Java writes a text that was cut in it."""


def archived(tmp_path, *records):
    """Write a store with some usual records around others, archive it; return both answers."""
    usual = [record(number) for number in range(20)]
    log = [*usual[:10], *records, *usual[10:]]
    log = [replace(each, queue_offset=number) for number, each in enumerate(log)]
    write_log(tmp_path / "store", log, 1 << 20)
    (batch,) = archive_store(tmp_path / "lake", tmp_path / "store")
    assert batch.messages == len(log)
    return rocketlens.open_store(tmp_path / "store"), rocketlens.open_archive(tmp_path / "lake")


def check_alike(tmp_path, odd, *texts):
    store, archive = archived(tmp_path, odd)
    with store, archive:
        assert sorted(map(repr, archive.scan())) == sorted(map(repr, store.scan()))
        for text in ("key-3", "key-15", *texts):
            answer = archive.find(text)
            assert answer.complete
            assert list(answer.messages) == list(store.find(text).messages)
            assert len(answer) == 1
        return archive.find("Topic/0/10").messages[0]


def test_a_body_that_cannot_be_decompressed_is_kept_as_it_was_stored(tmp_path):
    odd = replace(record(100), body=b"no zlib", sys_flag=COMPRESSED)
    message = check_alike(tmp_path, odd, "key-100")
    assert message.body == b"no zlib"
    assert message.body_error is not None


@pytest.mark.parametrize("flags", [0, COMPRESSED])
def test_a_batch_that_cannot_be_taken_apart_leaves_no_answer_complete(tmp_path, flags):
    body = zlib.compress(b"no batch") if flags else b"no batch"
    odd = replace(record(10), body=body, sys_flag=flags | SYS_FLAG_INNER_BATCH)
    write_log(tmp_path / "store", [*map(record, range(10)), odd, record(11)], 1 << 20)
    (batch,) = archive_store(tmp_path / "lake", tmp_path / "store")
    assert "cannot be taken apart" in batch.gaps[0]
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        scan = archive.scan("Topic")
        list(scan)
        answers = [archive.find("inner"), archive.find(topic="Topic"), archive.tail("Topic"), scan]
        assert not any(each.complete for each in answers)


@pytest.mark.parametrize("size", [1, 32_000])
def test_keys_of_any_length_are_found(tmp_path, size):
    key = "k" * size
    check_alike(tmp_path, record(100, KEYS=key), key)


def test_as_many_keys_as_a_message_can_have_are_found(tmp_path):
    keys = [f"many-{number}" for number in range(3000)]
    check_alike(tmp_path, record(100, KEYS=" ".join(keys)), keys[0], keys[-1])


def test_half_of_a_pair_in_a_key_and_a_property_is_archived_as_it_is_read(tmp_path):
    text = props.format_properties({"KEYS": "odd-?", "UNIQ_KEY": "F" * 32, "P": "?"}).encode()
    odd = replace(record(100), properties=text.replace(b"?", SURROGATE))
    with rocketlens.open_store(written(tmp_path / "alone", odd)) as store:
        (message,) = store.scan()
    message = check_alike(tmp_path, odd, message.keys[0], "F" * 32)
    assert message.properties["P"]


def written(path, *records):
    write_log(path, records, 1 << 20)
    return path


def test_a_delta_log_without_its_checkpoint_is_read_from_its_commits(tmp_path):
    store = written(tmp_path / "store", *map(record, range(30)))
    archive_store(tmp_path / "lake", store)
    for name in ("messages", "message_keys", "journal"):
        getattr(ArchiveTables(str(tmp_path / "lake")), name.rpartition("_")[2]).create_checkpoint()
        for path in (tmp_path / "lake" / name / "_delta_log").glob("*checkpoint*"):
            path.unlink()
    assert archive_store(tmp_path / "lake", store) == []
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        assert len(list(archive.scan())) == 30


@pytest.mark.parametrize("name", ["messages", "message_keys", "journal"])
def test_a_delta_log_that_is_lost_is_a_line_and_no_empty_answer(tmp_path, name):
    archive_store(tmp_path / "lake", written(tmp_path / "store", *map(record, range(30))))
    shutil.rmtree(tmp_path / "lake" / name / "_delta_log")
    with pytest.raises(ArchiveError, match=rf"{name}/_delta_log") as raised:
        rocketlens.open_archive(tmp_path / "lake")
    assert "\n" not in str(raised.value)


def test_a_directory_that_is_gone_makes_the_answer_incomplete(tmp_path):
    archive_store(tmp_path / "lake", written(tmp_path / "store", *map(record, range(30))))
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        (tmp_path / "lake").rename(tmp_path / "elsewhere")
        answer = archive.find("key-7")
        assert not answer.complete
        assert "is gone" in answer.failures[0].error
        (tmp_path / "elsewhere").rename(tmp_path / "lake")
        assert len(archive.find("key-7")) == 1
        assert archive.find("key-7").complete


@pytest.mark.parametrize("create", [False, True])
def test_tables_of_delta_that_are_no_archive_are_refused_and_not_changed(tmp_path, create):
    for name in ("messages", "message_keys", "journal"):
        rows = pa.table({"source": ["mine"], "topic": ["mine"]})
        deltalake.write_deltalake(tmp_path / name, rows)
    with pytest.raises(ArchiveError, match=r"has no column queue_id: .* not one of an archive"):
        ArchiveTables(str(tmp_path), create=create)
    for name in ("messages", "message_keys", "journal"):
        table = deltalake.DeltaTable(tmp_path / name)
        assert (table.version(), len(table.schema().fields)) == (0, 2)


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
