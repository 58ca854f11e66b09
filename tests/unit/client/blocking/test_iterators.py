"""Topics of a cluster as tables, with blocking calls."""

import polars as pl
import pytest

import rocketlens
from rocketlens.client.blocking import sync_admin
from rocketlens.testing import cluster


@pytest.fixture(scope="module")
def rocketmq():
    with cluster() as running, running.producer() as producer:
        for number in range(10):
            producer.send(rocketlens.Message("Orders", f"{number}", keys=f"k{number}"))
        yield running


@pytest.fixture
def admin(rocketmq):
    with rocketmq.admin() as admin:
        yield admin


@pytest.mark.parametrize("at_once", [1, 3, 256])
def test_a_scan_is_iterated_over_with_blocking_calls(admin, monkeypatch, at_once):
    monkeypatch.setattr(sync_admin, "_AT_ONCE", at_once)
    scan = admin.scan("Orders")
    assert sorted(int(each.body) for each in scan) == list(range(10))
    assert (scan.complete, scan.failures) == (True, ())
    assert scan.coverage


def test_a_scan_of_a_cluster_is_a_table(admin):
    table = admin.scan("Orders").to_arrow()
    assert sorted(table["keys"].to_pylist()) == [[f"k{n}"] for n in range(10)]
    with admin.scan("Orders").to_reader() as reader:
        assert sum(batch.num_rows for batch in reader) == 10
    assert pl.DataFrame(admin.scan("Orders")).height == 10


def test_a_scan_that_is_left_leaves_the_client_usable(admin):
    assert next(iter(admin.scan("Orders"))).topic == "Orders"
    assert len(admin.find("k1")) == 1


def test_a_wrong_topic_is_an_error_of_the_reader(admin):
    with pytest.raises(rocketlens.TopicNotFound, match="did you mean Orders"):
        admin.scan("Order").to_arrow()
