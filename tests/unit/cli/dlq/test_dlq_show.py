"""``rocketlens dlq show``: the dead letters of one group."""

import json

import pytest

from rocketlens.client.send.message import Message
from rocketlens.testing import cluster


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("dlq")) as running, running.producer() as producer:
        for number in range(4):
            producer.send(Message("%DLQ%billing", f"bad order {number}", keys=f"K{number}"))
        yield running


def test_dead_letters_have_times_keys_and_bodies(run, rocketmq):
    for source in (("-n", rocketmq.name_server), ("--store", str(rocketmq.store))):
        done = run("dlq", "show", "billing", *source)
        assert done.code == 0, done.err
        titles, *rows = (line.split("\t") for line in done.out.splitlines())
        assert (titles[0], titles[3], titles[-1]) == ("time", "keys", "body")
        found = [(row[3], row[-1]) for row in rows]
        assert found == [(f"K{n}", f"bad order {n}") for n in range(4)]


def test_only_the_newest_are_shown(run, rocketmq):
    done = run("dlq", "show", "billing", "--max", "1", "-o", "json", "-n", rocketmq.name_server)
    answer = json.loads(done.out)
    assert [each["keys"] for each in answer["messages"]] == [["K3"]]
    assert answer["truncated"]


def test_a_group_without_dead_letters_has_none(run, rocketmq):
    done = run("dlq", "show", "nobody", "-n", rocketmq.name_server)
    assert (done.code, done.out) == (1, "")
    assert "group nobody has no dead letters" in done.err
