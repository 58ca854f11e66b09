"""Messages as Arrow, pandas and Polars."""

import importlib
import re
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from rocketlens import PackageMissing, open_store
from rocketlens.formats import columns
from rocketlens.model import arrow
from rocketlens.model.fields import field_of
from rocketlens.model.installation import install_command


@pytest.fixture
def store(golden):
    with open_store(golden("5.5.0").store) as opened:
        yield opened


def test_messages_without_record_batches_cannot_be_made():
    with pytest.raises(NotImplementedError):
        arrow.ArrowMessages().to_reader()


@pytest.mark.parametrize("topic", [None, "PayTopic"])
def test_rows_and_messages_give_one_table(store, topic):
    messages = list(store.scan(topic))
    slow = pa.Table.from_batches(arrow.batches_of(messages))
    scan = store.scan(topic)
    fast = scan.to_arrow()
    assert scan.complete
    assert fast.to_pylist() == slow.to_pylist()
    assert fast.schema == slow.schema == arrow.schema()


def test_a_scan_reads_times_and_tags_as_its_messages_do(store):
    messages = list(store.scan("PayTopic", tag="TagA || A"))
    middle = messages[len(messages) // 2].store_timestamp_ms
    expected = [each.physical_offset for each in messages if each.store_timestamp_ms >= middle]
    found = store.scan("PayTopic", begin=middle, tag="TagA || A").to_arrow()
    assert found["physical_offset"].to_pylist() == expected


def test_without_bodies_they_are_null(store):
    batches = list(store.scan().record_batches(with_body=False))
    assert batches
    assert all(batch["body"].null_count == batch.num_rows for batch in batches)


def test_a_damaged_message_is_left_out_and_makes_the_scan_incomplete(damaged):
    with open_store(damaged) as store:
        scan = store.scan()
        table = scan.to_arrow()
        messages = store.scan()
        assert table["physical_offset"].to_pylist() == [one.physical_offset for one in messages]
        assert not scan.complete
        assert scan.failures == messages.failures


def test_an_answer_is_a_table(store):
    answer = store.find("order-42")
    table = answer.to_arrow()
    assert table["topic"].to_pylist() == [each.topic for each in answer]
    assert table["keys"].to_pylist() == [list(each.keys) for each in answer]
    first = table.to_pylist()[0]
    assert first["store_time"].timestamp() * 1000 == answer.messages[0].store_timestamp_ms
    assert dict(first["properties"]) == dict(answer.messages[0].properties)


def test_other_libraries_take_it_as_it_is(store):
    polars = pytest.importorskip("polars")
    pytest.importorskip("pandas")
    answer = store.find("order-42")
    frame = answer.to_polars()
    assert frame["topic"].to_list() == [each.topic for each in answer]
    assert polars.DataFrame(answer).equals(frame)
    assert pa.table(answer).equals(answer.to_arrow())
    pandas_frame = store.scan("PayTopic").to_pandas()
    assert len(pandas_frame) == len(list(store.scan("PayTopic")))
    columns = answer.to_arrow().column_names
    assert "store_time" in columns
    assert list(frame.columns) == list(pandas_frame.columns) == columns
    assert pa.table(answer).column_names == columns
    assert pandas_frame["properties"][0]["UNIQ_KEY"] == pandas_frame["unique_key"][0]
    assert str(pandas_frame["store_time"].dt.tz) == "UTC"


def test_a_reader_reads_as_it_is_read(store):
    scan = store.scan()
    reader = scan.to_reader()
    assert not scan.complete
    assert sum(batch.num_rows for batch in reader) == len(list(store.scan()))
    assert scan.complete


@pytest.mark.parametrize(
    ("body", "text", "is_json"),
    [
        (b"plain", "plain", False),
        ('{"城": 1}'.encode(), '{"城": 1}', True),
        (b" [1, 2.5e3, null] ", " [1, 2.5e3, null] ", True),
        (b'"text"', '"text"', True),
        (b"", "", False),
        (b"[1,]", "[1,]", False),
        (b"NaN", "NaN", False),
        (b"\xff", None, False),
        (b'{"a": "\xff"}', None, False),
        (b"[" * 100_000, "[" * 100_000, False),
        (b'"' + b"x" * (4 << 20) + b'"', '"' + "x" * (4 << 20) + '"', False),
    ],
)
def test_a_body_is_text_and_json_where_it_is(store, body, text, is_json):
    message = replace(store.find("order-42").messages[0], body=body)
    expected = {"body_text": text, "body_json": text if is_json else None}
    assert {name: field_of(message, name) for name in expected} == expected
    # Beside bodies of other kinds, and in a slice of an array.
    bodies = pa.array([b"{}", b"\xfe", body, b"x"]).slice(1)
    made = {
        name: each.to_pylist()
        for name, each in columns.text_columns(bodies, with_text=True).items()
    }
    assert made == {
        "body_text": [None, text, "x"],
        "body_json": [None, expected["body_json"], None],
    }
    (batch,) = arrow.batches_of([message])
    assert {name: batch[name][0].as_py() for name in expected} == expected


def test_without_texts_they_are_null_and_bodies_are_not(store):
    for batches in (store.scan(), store.find("order-42").messages):
        kwargs = {"with_body": True, "with_text": False}
        made = getattr(batches, "record_batches", partial(arrow.batches_of, batches))(**kwargs)
        for batch in made:
            assert batch["body_text"].null_count == batch["body_json"].null_count == len(batch)
            assert batch["body"].null_count == 0


def test_a_time_that_no_calendar_has_is_null():
    times = np.array([0, 2**63 - 1, -(2**63), arrow.LAST_TIME_MS, arrow.FIRST_TIME_MS])
    shown = arrow.time_column(times).to_pylist()
    assert [each and each.year for each in shown] == [1970, None, None, 9999, 1]


def test_bounded_batches(store, monkeypatch):
    monkeypatch.setattr(arrow, "BATCH_ROWS", 3)
    messages = store.find("order-42").messages
    assert [b.num_rows for b in arrow.batches_of(messages)] == [3, 3, 1]
    monkeypatch.setattr(arrow, "BATCH_BYTES", 1)
    assert [b.num_rows for b in arrow.batches_of(messages)] == [1] * 7


@pytest.mark.parametrize(
    ("method", "package", "extra"),
    [
        ("record_batches", "pyarrow", "arrow"),
        ("to_arrow", "pyarrow", "arrow"),
        ("to_reader", "pyarrow", "arrow"),
        ("to_pandas", "pandas", "pandas"),
        ("to_polars", "polars", "polars"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(store, monkeypatch, method, package, extra):
    def missing(name):
        if name == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return importlib.import_module(name)

    monkeypatch.setattr(arrow, "import_module", missing)
    with pytest.raises(
        PackageMissing, match=re.escape(f"needs {package}: {install_command(extra)}")
    ):
        getattr(store.find("order-42"), method)()
