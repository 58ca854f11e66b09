"""``rocketlens export``."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from rocketlens import Message, open_store
from rocketlens.cli import export as program
from rocketlens.cli.export import read_into
from rocketlens.model.fields import TEXT_COLUMNS
from rocketlens.testing import cluster

READERS = {"parquet": pq.read_table, "arrow": lambda path: ipc.open_file(path).read_all()}


@pytest.fixture
def store(golden):
    return golden("5.5.0").store


@pytest.fixture(params=[1, 1 << 26])
def group_bytes(request, monkeypatch):
    """Row groups of one batch, and one of all."""
    monkeypatch.setattr(program, "_GROUP_BYTES", request.param)


@pytest.mark.usefixtures("group_bytes")
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_topic_is_exported_as_a_table(run, store, tmp_path, form):
    path = tmp_path / f"pay.{form}"
    done = run("export", path, "-t", "PayTopic", "--store", store)
    assert done.code == 0, done.err
    with open_store(store) as opened:
        expected = opened.scan("PayTopic").to_arrow().drop_columns(list(TEXT_COLUMNS))
    assert READERS[form](path).to_pylist() == expected.to_pylist()
    assert READERS[form](path).schema == expected.schema
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert f"wrote {len(expected)} messages to {path}" in done.err
    assert done.out == ""


def test_the_newest_of_a_topic_are_a_whole_file(run, store, tmp_path):
    path = tmp_path / "pay.jsonl"
    options = ("-t", "PayTopic", "--store", store, "--max", "3")
    assert run("export", path, *options).code == 0
    assert path.read_text() == run("find", *options, "-o", "jsonl").out
    assert path.read_text().count("\n") == 3


def test_columns_are_those_that_are_asked_for(run, store, tmp_path):
    path = tmp_path / "pay.pq"
    assert run("export", path, "--store", store, "--fields", "store_time,topic").code == 0
    table = pq.read_table(path)
    assert table.column_names == ["store_time", "topic"]
    assert table.schema.field("store_time").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(("suffix", "output"), [("csv", "csv"), ("jsonl", "jsonl")])
def test_text_is_what_find_prints(run, store, tmp_path, suffix, output):
    path = tmp_path / f"pay.{suffix}"
    options = ("-t", "PayTopic", "--store", store, "--body", "base64")
    assert run("export", path, *options).code == 0
    assert path.read_text() == run("find", *options, "-o", output).out


def test_a_key_and_a_time_select(run, store, tmp_path):
    path = tmp_path / "order.csv"
    assert run("export", path, "-k", "order-42", "--store", store).code == 0
    assert len(list(csv.reader(io.StringIO(path.read_text())))) == 8
    done = run("export", path, "--until", "2000-01-01", "--store", store, "--overwrite")
    assert done.code == 1
    assert path.read_text().count("\n") == 1


def test_an_incomplete_answer_has_a_name_of_its_own(run, damaged, tmp_path):
    path = tmp_path / "all.parquet"
    path.write_text("before")
    done = run("export", path, "--store", damaged, "--overwrite")
    assert done.code == 3
    assert path.read_text() == "before"
    assert pq.read_table(tmp_path / "all.parquet.incomplete").num_rows == 2
    assert f"{path} was not written" in done.err
    assert {each.name for each in tmp_path.iterdir()} == {
        "all.parquet",
        "all.parquet.incomplete",
        damaged.name,
    }


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_what_fails_leaves_no_file(run, store, tmp_path, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("rocketlens.cli.export.read_into", fails)
    done = run("export", tmp_path / "all.jsonl", "--store", store)
    assert done.code in {2, 130}
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """The current directory, with one file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("all.xls",), "--as"),
        (("none/all.csv",), "not a directory"),
        (("there.csv",), "exists: --overwrite"),
        (("all.parquet", "--fields", "topik"), "did you mean topic"),
        (("all.csv", "--fields", "topik"), "did you mean topic"),
        (("all.parquet", "--body", "json"), "--body"),
        (("all.csv", "--since", "1h", "--until", "2h"), "--since is after"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(run, store, directory, arguments, said):
    done = run("export", *arguments, "--store", store)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err
    assert [each.name for each in directory.iterdir()] == ["there.csv"]


def test_a_cluster_is_exported_topic_by_topic(run, tmp_path):
    with cluster() as running:
        with running.producer() as producer:
            for number in range(30):
                producer.send(Message(f"T{number % 2}", f"{number}", keys=f"K{number}"))
        paths = [tmp_path / name for name in ("a.parquet", "a.jsonl")]
        for path in paths:
            done = run("export", path, "-t", "T*", "-n", running.name_server)
            assert done.code == 0, done.err
        done = run("export", tmp_path / "k.jsonl", "-k", "K3", "-n", running.name_server)
        assert done.code == 0, done.err
    bodies = {b"%d" % number for number in range(30)}
    assert set(pq.read_table(paths[0])["body"].to_pylist()) == bodies
    assert len(paths[1].read_text().splitlines()) == 30
    (line,) = (tmp_path / "k.jsonl").read_text().splitlines()
    assert json.loads(line)["keys"] == ["K3"]


def test_messages_are_exported_by_what_is_in_them(run, write_store, tmp_path):
    bodies = [b'{"a": 1}', b'{"a": 2}', b'{"a": 3}']
    source = write_store(*({"body": body, "properties": {"KEYS": "k"}} for body in bodies))
    for number, where in enumerate(("body.$.a > 1", "key = 'k' AND body.$.a > 1")):
        path = tmp_path / f"{number}.parquet"
        done = run("export", path, "--store", source, "--where", where)
        assert done.code == 0, done.err
        assert pq.read_table(path)["body"].to_pylist() == bodies[1:]
        text = path.with_suffix(".jsonl")
        done = run("export", text, "--store", source, "--where", where, "--body", "decoded")
        assert done.code == 0, done.err
        lines = text.read_text().splitlines()
        assert [json.loads(line)["body"]["a"] for line in lines] == [2, 3]


def test_a_file_that_is_made_meanwhile_is_kept(run, store, tmp_path, monkeypatch):
    path = tmp_path / "all.jsonl"

    def made_meanwhile(*asked):
        answer = read_into(*asked)
        path.write_text("of another")
        return answer

    monkeypatch.setattr("rocketlens.cli.export.read_into", made_meanwhile)
    done = run("export", path, "--store", store)
    assert (done.code, path.read_text()) == (2, "of another")
    assert "made by another program meanwhile" in done.err
    assert (tmp_path / "all.jsonl.incomplete").read_text().count("\n") > 1000
    assert run("export", path, "--store", store, "--overwrite").code == 0
