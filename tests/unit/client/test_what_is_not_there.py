"""What a store, a cluster or an archive does not have is named, with the nearest that it has."""

import re

import pytest

import rocketlens
from rocketlens import Message, SyncMQAdmin
from rocketlens.errors import MessageNotFound, TopicNotFound
from rocketlens.testing import cluster
from tests.support.archives import archive_store
from tests.support.made_stores import Sent, make_store

MEANT = "did you mean payments?"


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    lake = tmp_path_factory.mktemp("lake")
    made = make_store(
        lake / "store", [Sent("payments", f"key-{n}", queue_id=n % 4) for n in range(8)]
    )
    archive_store(lake, made.path)
    with cluster() as running:
        with running.producer() as producer:
            for number in range(8):
                producer.send(Message("payments", f"{number}", keys=f"key-{number}"))
        with (
            rocketlens.open_store(running.store) as store,
            SyncMQAdmin(running.name_server) as admin,
            rocketlens.open_archive(lake) as archive,
        ):
            yield {"store": store, "cluster": admin, "archive": archive}


@pytest.fixture(params=["store", "cluster", "archive"])
def door(request, doors):
    return doors[request.param]


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (("paymets", 0, 3), r"did you mean payments\?"),
        (("payments", 0, 3000), "payments/0 ends at 2"),
        (("payments", 9, 1), "no queue payments/9.*: its topic has queues 0 to 3"),
    ],
)
def test_a_position_that_is_not_there_says_what_is(door, position, said):
    with pytest.raises(MessageNotFound, match=said):
        door.query_by_queue_offset(*position)
    answer = door.find("/".join(map(str, position)))
    assert answer.complete
    assert any(re.search(said, each.note or "") for each in answer.coverage)
    assert not any(each.error for each in answer.coverage)


def test_a_position_that_is_there_is_found_by_each(door):
    assert door.query_by_queue_offset("payments", 0, 1).position == "payments/0/1"


@pytest.mark.parametrize(
    "ask",
    [
        lambda door: door.query_message("paymets", "key-1"),
        lambda door: door.topics("paymets"),
        lambda door: door.find("key-1", "paymets"),
        lambda door: list(door.tail("paymets")),
        lambda door: list(door.scan("paymets")),
        lambda door: door.story("key-1", "paymets"),
    ],
)
def test_a_topic_that_is_not_there_is_named_with_the_one_probably_meant(door, ask):
    try:
        said = [str(each.note) for each in ask(door).coverage]
    except TopicNotFound as error:
        said = [str(error)]
    assert any(each.endswith(MEANT) and "paymets" in each for each in said), said
