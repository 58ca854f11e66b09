"""Names in a namespace, as brokers know them."""

import pytest

from rocketlens.client.connect.namespace import with_namespace, without_namespace
from tests.support.async_tests import within
from tests.support.fake_cluster import ask, bodies


@within(ask, namespace="ns")
async def test_a_namespace_is_put_before_topics(cluster, admin, /):
    cluster.name_servers[0].topics["ns%T"] = ["broker-a"]
    cluster.masters[0].store("ns%T", b"m", keys="k")
    assert bodies(await admin.query_message("T", "k")) == [b"m"]
    assert (await admin.message_queues("T"))[0].topic == "T"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("T", "ns%T"),
        ("ns%T", "ns%T"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%ns%g", "%DLQ%ns%g"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("TBW102", "TBW102"),
        ("CHECKPOINT_TOPIC", "CHECKPOINT_TOPIC"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("RMQ_SYS_ORDERS", "ns%RMQ_SYS_ORDERS"),
    ],
)
def test_brokers_know_names_with_their_namespace(name, known):
    assert with_namespace("ns", name) == known
    assert without_namespace("ns", known) == name.replace("ns%", "")
    assert with_namespace("", name) == without_namespace("", name) == name
