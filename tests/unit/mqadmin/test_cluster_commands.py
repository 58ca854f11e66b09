"""clusterList, printed as RocketMQ's tools do; rows are of Java's formatter."""

import asyncio
from pathlib import Path

import pytest

from rocketlens.errors import AnswerIncomplete
from rocketlens.mqadmin.cluster_commands import cluster_list
from tests.unit.mqadmin.fake_tool import DEAD, call


def printed(name):
    return Path(__file__).with_name("printed").joinpath(f"{name}.txt").read_text()


@pytest.mark.parametrize("version", ["4.9", "5.5"])
def test_each_broker_has_a_row_and_one_that_is_gone_an_empty_one(version, capsys):
    for options, name in (({}, f"clusterList-{version}"), ({"m": None}, "clusterList-m")):
        with pytest.raises(AnswerIncomplete, match=DEAD):
            asyncio.run(cluster_list(call(version, **options)))
        assert capsys.readouterr().out == printed(name)


def test_one_cluster_may_be_listed_alone(capsys):
    asyncio.run(cluster_list(call("5.5", c="Second")))
    head, *rows = printed("clusterList-5.5").splitlines()
    assert capsys.readouterr().out.splitlines() == [head, rows[0]]
