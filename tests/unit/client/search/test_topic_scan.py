"""Whole topics of a cluster are read, one message after the other or as Arrow batches."""

import pyarrow as pa
import pytest

from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.model import arrow
from tests.support.async_tests import within
from tests.support.fake_cluster import T0, ask, fail

TRACE = "RMQ_SYS_TRACE_TOPIC"


def fill(cluster):
    """Store three messages of T on each broker, one of U on the first, and a trace."""
    cluster.name_servers[0].topics |= {"U": ["broker-a"], TRACE: ["broker-a"]}
    for broker in cluster.masters:
        broker.now_ms = T0
        for number in range(3):
            body = b'{"n": %d}' % number
            broker.store(
                "T", body, keys=f"k{number}", queue_id=number, more={"TAGS": "AB"[number % 2]}
            )
    cluster.masters[0].store("U", b"u")
    cluster.masters[0].store(TRACE, b"\xff trace")


async def bodies(scan):
    return sorted([message.body.decode("latin-1") async for message in scan])


ASKED = [
    ({"topic": "T"}, ['{"n": 0}'] * 2 + ['{"n": 1}'] * 2 + ['{"n": 2}'] * 2),
    ({"topic": "U"}, ["u"]),
    ({"topic": ["T", "U"], "tag": "B"}, ['{"n": 1}'] * 2),
    ({"topic": "?", "where": "body.$.n > 1"}, ['{"n": 2}'] * 2),
    ({"grep": "u"}, ["u"]),
    ({"topic": "T", "end": 5}, []),
    ({"topic": "T", "where": "key = 'k1'"}, ['{"n": 1}'] * 2),
    ({"topic": TRACE}, ["\xff trace"]),
]


@pytest.mark.parametrize(("question", "expected"), ASKED, ids=str)
@within(ask, masters=2)
async def test_a_scan_has_all_messages_that_match(cluster, admin, /, question, expected):
    fill(cluster)
    scan = admin.scan(**question)
    assert await bodies(scan) == expected
    assert scan.complete or "body" in question.get("where", "")


@within(ask, masters=2)
async def test_all_topics_are_scanned_but_rocketmqs_own_which_are_counted(cluster, admin, /):
    fill(cluster)
    scan = admin.scan()
    assert len(await bodies(scan)) == 7
    assert scan.complete
    (told,) = [each.note for each in scan.coverage if "left out" in (each.note or "")]
    assert told.startswith("1 message of")
    assert len(await bodies(admin.scan(all_topics=True))) == 8


@pytest.mark.cluster(masters=2)
async def test_batches_have_the_columns_and_the_messages_of_a_scan(cluster, admin, monkeypatch):
    monkeypatch.setattr("rocketlens.client.search.topic_scan.BATCH_ROWS", 2)
    fill(cluster)
    batches = [each async for each in admin.scan("T").record_batches()]
    assert [each.num_rows for each in batches] == [2, 2, 2]
    assert batches[0].schema == arrow.schema()
    table = await admin.scan("T").to_arrow()
    assert sorted(table["keys"].to_pylist()) == [[f"k{n}"] for n in (0, 0, 1, 1, 2, 2)]
    empty = await admin.scan("T", end=5).to_arrow()
    assert (empty.num_rows, empty.schema) == (0, arrow.schema())
    assert isinstance(empty, pa.Table)


@within(ask, masters=2)
async def test_a_broker_that_fails_makes_a_scan_incomplete(cluster, admin, /):
    fill(cluster)
    await fail(cluster.masters[1], "erring")
    scan = admin.scan("T")
    assert len(await bodies(scan)) == 3
    assert not scan.complete
    assert [each.source for each in scan.failures] == ["broker-b"]


@within(ask, masters=2)
async def test_a_body_that_a_filter_cannot_read_is_told_once(cluster, admin, /):
    fill(cluster)
    scan = admin.scan([TRACE, "T"], where="body.$.n = 1")
    assert len(await bodies(scan)) == 2
    assert not scan.complete
    assert len([each for each in scan.coverage if each.source == "filter"]) == 1


@within(ask)
async def test_a_topic_that_does_not_exist_is_refused_with_what_was_meant(cluster, admin, /):
    cluster.name_servers[0].topics["PayTopic"] = ["broker-a"]
    for wrong in ("PayTopc", ["T", "PayTopc"]):
        with pytest.raises(TopicNotFound, match="did you mean PayTopic"):
            await bodies(admin.scan(wrong))
    with pytest.raises(TopicNotFound, match="no topic matches"):
        await bodies(admin.scan("Nowhere*"))
    with pytest.raises(BadInput):
        admin.scan("T", where="a ==")
