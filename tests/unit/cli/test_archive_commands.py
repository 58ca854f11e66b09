"""Commands that read messages do so in an archive as in a store; others say what to do instead."""

import csv
import io
import json
import re

import pytest

from tests.support.archives import archive_store


@pytest.fixture(scope="module")
def lake(golden, tmp_path_factory):
    directory = tmp_path_factory.mktemp("lake")
    archive_store(directory, golden("5.5.0").store)
    return directory


@pytest.fixture(scope="module")
def store(golden):
    return golden("5.5.0").store


@pytest.fixture(scope="module")
def sent(golden):
    return next(each for each in golden("5.5.0").sent if (each["keys"] or "").startswith("batch-"))


def lines(text):
    return sorted(text.splitlines())


def test_a_message_is_shown_from_an_archive_as_from_its_store(run, lake, store, sent):
    shown = run("show", sent["offset_msg_id"], "--archive", lake)
    assert (shown.code, shown.out) == (0, run("show", sent["offset_msg_id"], "--store", store).out)
    both = run("show", sent["offset_msg_id"], "--archive", lake, "--store", store, "-o", "json")
    assert len(json.loads(both.out)["messages"]) == 1


def test_a_story_is_told_from_an_archive_which_knows_no_groups(run, lake, store, sent):
    told = run("story", sent["offset_msg_id"], "--archive", lake)
    assert told.code == 0, told.err
    told_in_one_line = " ".join(told.out.split())
    assert f"[archive {lake}]" in told_in_one_line
    assert "an archive has messages alone: ask a store or a cluster, too" in told_in_one_line
    both = run("story", sent["offset_msg_id"], "--archive", lake, "--store", store, "-o", "json")
    assert both.code == 0, both.err
    events = [each["text"] for each in json.loads(both.out)["events"]]
    assert sum(text.startswith("stored as") for text in events) == 1


def test_topics_are_those_of_the_store(run, lake, store):
    of_store, of_archive = (
        json.loads(run("topics", "--all", "-o", "json", *where).out)
        for where in (("--store", store), ("--archive", lake))
    )
    assert of_archive["complete"]
    counted = {
        topic["name"]: (topic["messages"], topic["oldest_ms"], topic["newest_ms"])
        for topic in of_archive["topics"]
    }
    assert counted == {
        topic["name"]: (topic["messages"], topic["oldest_ms"], topic["newest_ms"])
        for topic in of_store["topics"]
        if topic["messages"]
    }
    assert "did you mean" in run("topics", "NoTopc", "batchtopic", "--archive", lake).err


@pytest.mark.parametrize("name", ["all.jsonl", "all.csv"])
def test_exports_of_an_archive_have_the_rows_of_the_store(run, lake, store, tmp_path, name):
    for source, directory in (("--archive", lake), ("--store", store)):
        (tmp_path / source).mkdir()
        done = run("export", tmp_path / source / name, source, directory)
        assert done.code == 0, done.err
    exported, expected = ((tmp_path / each / name).read_text() for each in ("--archive", "--store"))
    # Only an archive knows whose its messages are.
    assert lines(re.sub(r'"(cluster|broker)":"[^"]*"', r'"\1":null', exported)) == lines(expected)


def test_a_parquet_export_of_an_archive_has_all_messages(run, lake, store, tmp_path):
    import pyarrow.parquet as pq

    ids = []
    for source, directory in (("--archive", lake), ("--store", store)):
        file = tmp_path / f"{source}.parquet"
        assert run("export", file, source, directory).code == 0
        ids.append(sorted(pq.read_table(file).column("offset_msg_id").to_pylist()))
    assert ids[0] == ids[1]


def test_sql_counts_an_archive_as_its_store(run, lake, store, sent):
    query = "select topic, count(*) n, min(body) from messages group by 1 order by 1"
    of_archive, of_store = (
        run("sql", query, "-o", "csv", *where)
        for where in (("--archive", lake), ("--store", store))
    )
    assert (of_archive.code, of_archive.out) == (0, of_store.out)
    by_key = f"select offset_msg_id from messages where '{sent['keys']}' = any(keys)"
    done = run("sql", by_key, "-o", "csv", "--archive", lake)
    assert sent["offset_msg_id"] in done.out
    cut = run("sql", "select topic from messages limit 1", "-o", "csv", "--archive", lake)
    assert cut.code == 0, cut.err
    merged = run(
        "sql", "select count(*) from messages", "-o", "csv", "--archive", lake, "--store", store
    )
    (_, (count,)) = csv.reader(io.StringIO(merged.out))
    alone = run("sql", "select count(*) from messages", "-o", "csv", "--store", store)
    assert alone.out.split() == ["count_star()", count]


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (("groups",), "rocketlens story"),
        (("status",), "rocketlens topics --archive"),
        (("tail", "-t", "T"), "rocketlens find --archive DIR -t TOPIC --max"),
        (("dlq", "show", "G"), "rocketlens find --archive DIR -t %DLQ%GROUP"),
    ],
)
def test_what_an_archive_cannot_tell_is_refused_with_what_can(run, lake, command, instead):
    done = run(*command, "--archive", lake)
    assert done.code == 2
    assert instead in done.err


def test_what_was_probably_meant_is_said(run, lake, sent):
    misspelled = f"{sent['topic'].lower()}/0/0"
    done = run("find", misspelled, "--archive", lake)
    assert done.code == 1
    assert sent["topic"] in done.err
    done = run("find", sent["topic"], "--archive", lake)
    assert f"{sent['topic']} is a topic" in done.err
    done = run("find", sent["keys"].upper(), "--kind", "key", "--archive", lake)
    assert "case matters in keys" in done.err
