"""Positions of queues as Spark's sources have them, and what cannot be one."""

import json

import pytest

from rocketlens import limits, read_batches
from rocketlens.bulk.positions import EARLIEST, LATEST, AskedQueue, positions_option
from rocketlens.errors import BadInput, StoreError
from tests.support.written_stores import open_small, send

START = "startingOffsets"


def positions(text, **named):
    return positions_option({START: text}, START, **{"refused": None, "has_topic": None, **named})


def test_both_forms_are_read_by_topic_broker_and_queue():
    text = '{"A":{"b-1":{"0":23,"1":-1},"b-2":{"0":-2}},"%RETRY%g":{"7":5},"0":{"0":{"0":1}}}'
    assert positions(text).offsets == {
        AskedQueue("A", "b-1", 0): 23,
        AskedQueue("A", "b-1", 1): LATEST,
        AskedQueue("A", "b-2", 0): EARLIEST,
        AskedQueue("%RETRY%g", None, 7): 5,
        # A broker may have a number for a name.
        AskedQueue("0", "0", 0): 1,
    }
    assert positions_option({}, START, refused=None, has_topic=None).offsets == {}


@pytest.mark.parametrize(
    "text",
    [
        *["{", "{}", '{"A"}', '{"A":5}', '{"A":{}}', '{"A":{"b":{}}}', '{"A":[1]}', '{"A":null}'],
        *['{"A":{"b":{"x":1}}}', '{"A":{"b":{"0":"1"}}}', '{"A":{"b":{"0":1.0}}}'],
        *['{"A":{"b":{"0":true}}}', '{"A":{"b":{"0":-3}}}', '{"A":{"b":{"-1":0}}}'],
        *['{"A":{"b":5}}', '{"A":{"b":{"0":1},"0":5}}', '{"A":{"b":{"\u0663":1}}}'],
        json.dumps({"A": {"b": {"0": limits.MAX_QUEUE_OFFSET + 1}}}),
        json.dumps({"A": {"b": {str(limits.MAX_INT + 1): 0}}}),
        f'{{"A":{{"b":{{"0":{"9" * 5000}}}}}}}',
        '{"A":' * 100_000,
        # Which of both would count?
        *['{"A":{"0":1},"A":{"0":2}}', '{"A":{"b":{"0":1,"0":2}}}', '{"A":{"b":{"0":1,"00":1}}}'],
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_position_is_refused_with_the_form(text):
    with pytest.raises(BadInput, match=START) as refused:
        positions(text)
    assert len(str(refused.value)) < 500


def test_what_an_option_cannot_have_is_refused():
    with pytest.raises(BadInput, match=r"has -1 \(latest\) of topic A, queue 0"):
        positions('{"A":{"0":-1}}', refused=LATEST)
    with pytest.raises(BadInput, match="names topic A, which is not read"):
        positions('{"A":{"0":1}}', has_topic="B".__eq__)
    options = {START: '{"A":{"0":1}}', "startingTimestamp": "5"}
    with pytest.raises(BadInput, match="both say where to read"):
        positions_option(options, START, refused=None, has_topic=None)


def test_the_broker_of_a_queue_may_be_left_out_where_one_has_the_topic():
    queues = [("A", "b-1", 0), ("B", "b-1", 0), ("B", "b-2", 0)]
    found = positions('{"A":{"0":5},"B":{"b-2":{"0":6}}}').by_queue(queues)
    assert found == {("A", "b-1", 0): 5, ("B", "b-2", 0): 6}
    with pytest.raises(BadInput, match=r"topic B is on 2 brokers \(b-1, b-2\)"):
        positions('{"B":{"0":5}}').by_queue(queues)
    with pytest.raises(BadInput, match="no such queue: topic C, queue 0"):
        positions('{"C":{"0":5}}').by_queue(queues)
    # A filter that was pushed leaves the topic out.


def test_a_position_at_either_end_of_a_queue_is_in_it():
    asked = positions('{"A":{"0":5}}')
    assert asked.outside("q", 3, (3, 9)) == asked.outside("q", 9, (3, 9)) == []
    assert asked.outside("q", 2, (3, 9)) == [f"q begins at offset 3, and {START} says 2"]
    assert asked.outside("q", 10, (3, 9)) == [f"q ends at offset 9, and {START} says 10"]


# Stores.


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A store with 40 messages of Orders in each of the queues 0 to 2, and one of Other."""
    path = tmp_path_factory.mktemp("store")
    with open_small(path) as store:
        for number in range(120):
            send(store, number, queue_id=number % 3)
        send(store, 120, topic="Other")
    return path


def offsets_of(store, **options):
    """Return the queue offsets that are read, by topic and queue."""
    found = {}
    given = {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in options.items()
    }
    for batch in read_batches(store, **given):
        for row in batch.to_pylist():
            found.setdefault((row["topic"], row["queue_id"]), []).append(row["queue_offset"])
    return found


@pytest.mark.parametrize("has_name", [True, False], ids=["broker", "no broker"])
def test_positions_bound_what_is_read_of_the_queues_of_a_store(written, has_name):
    def of(queues):
        return {"Orders": {"any-name": queues} if has_name else queues}

    starts, ends = of({"0": 7, "1": -2}), of({"0": 9, "2": 0})
    found = offsets_of(written, startingOffsets=starts, endingOffsets=ends)
    assert found == {("Orders", 0): [7, 8], ("Orders", 1): [*range(40)], ("Other", 0): [0]}
    assert offsets_of(written, topic="Orders", startingOffsets=of({"0": 40, "1": 40})) == {
        ("Orders", 2): [*range(40)]
    }
    assert len(offsets_of(written, endingOffsets=of({"0": -1}))[("Orders", 0)]) == 40


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({START: {"Orders": {"3": 0}}}, "the store has no such queue: topic Orders, queue 3"),
        ({START: {"Ordrs": {"0": 0}}}, "no topic 'Ordrs'; did you mean Orders"),
        ({START: {"Orders": {"a": {"0": 1}, "b": {"0": 1}}}}, r"2 brokers \(a, b\) are named"),
        (
            {START: {"Orders": {"a": {"0": 1}}}, "endingOffsets": {"Orders": {"b": {"0": 1}}}},
            r"startingOffsets and endingOffsets: 2 brokers \(a, b\) are named, a store is of one",
        ),
        ({START: {"Orders": {"a": {"0": 1}}, "Other": {"0": 0}}, "topic": "Orders"}, "not read"),
        ({START: {"Orders": {"0": 5}}, "endingOffsets": {"Orders": {"0": 4}}}, "says 5, and"),
        ({START: {"Orders": {"0": -1}}}, "which it cannot have"),
        ({START: {"Orders": {"0": 1}}, "startingOffset": 5}, "give one"),
        ({START: {"Orders": {"0": 1}}, "table": "damage"}, "damage is not of queues"),
    ],
)
def test_positions_that_a_store_cannot_have_are_errors_before_it_is_read(written, options, said):
    with pytest.raises(BadInput, match=said):
        offsets_of(written, **options)


@pytest.mark.parametrize("name", [START, "endingOffsets"])
def test_a_position_behind_the_end_is_logged_or_an_error(written, name, caplog):
    options = {name: {"Orders": {"0": 41}}}
    expected = [] if name == START else [*range(40)]
    assert offsets_of(written, **options).get(("Orders", 0), []) == expected
    assert f"topic Orders, queue 0 ends at offset 40, and {name} says 41" in caplog.text
    with pytest.raises(StoreError, match="ends at offset 40"):
        offsets_of(written, failOnDataLoss=True, **options)


def test_a_position_that_the_broker_deleted_is_logged_or_an_error(tmp_path, caplog):
    with open_small(tmp_path) as store:
        for number in range(120):
            send(store, number, queue_id=0, body=bytes(200))
    first = tmp_path / "commitlog" / f"{0:020}"
    first.unlink()
    found = offsets_of(tmp_path)[("Orders", 0)]
    assert found[0] > 1
    assert offsets_of(tmp_path, startingOffsets={"Orders": {"0": 1}}) == {("Orders", 0): found}
    assert f"queue 0 begins at offset {found[0]}, and {START} says 1" in caplog.text
    caplog.clear()
    at = {"Orders": {"0": found[0]}}
    assert offsets_of(tmp_path, failOnDataLoss=True, startingOffsets=at) == {("Orders", 0): found}
    with pytest.raises(StoreError, match=f"begins at offset {found[0]}"):
        offsets_of(tmp_path, failOnDataLoss=True, startingOffsets={"Orders": {"0": 1}})


def test_of_a_log_alone_any_queue_may_be_named(written, tmp_path):
    (tmp_path / "commitlog").symlink_to(written / "commitlog")
    found = offsets_of(tmp_path, startingOffsets={"Orders": {"0": 39, "9": 5}})
    assert found[("Orders", 0)] == [39]
