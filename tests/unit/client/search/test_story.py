"""One story from several sources: the cluster's word counts where both know."""

import shutil

import pytest

import rocketlens
from rocketlens import BadInput, SyncPushConsumer
from rocketlens.client.send.message import Message
from rocketlens.testing import cluster
from tests.support.story_world import KEY


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A cluster, a copy of its store, and the id of a message that a group consumed."""
    directory = tmp_path_factory.mktemp("rocketmq")
    with cluster(directory) as running, running.producer() as producer:
        sent = producer.send(Message("Orders", "x", tags="A", keys="order-1"))
        consumer = SyncPushConsumer(running.name_server, group="billing", begin="first")
        consumer.subscribe("Orders")
        with consumer:
            consumer.ack(next(iter(consumer)))
            consumer.commit()
        copied = directory / "copied"
        shutil.copytree(running.store, copied)
        yield running, copied, sent.msg_id


def test_a_store_and_a_cluster_tell_one_story(world):
    running, copied, msg_id = world
    story = rocketlens.story(msg_id, sources=[running.name_server, copied])
    assert story.message.msg_id == msg_id
    assert [each.kind for each in story.events] == ["sent", "stored"]
    assert story.events[1].source == "broker-a"
    [group] = story.groups
    assert (group.group, group.state.value) == ("billing", "passed_offline")
    alone = rocketlens.story(msg_id, sources=[copied], group="nobody")
    assert alone.groups[0].state.value in {"never_subscribed", "unknown"}
    assert alone.events[1].source == f"commit log of {copied}"


def test_an_open_admin_and_an_open_store_are_sources(world):
    running, copied, msg_id = world
    with running.admin() as admin, rocketlens.open_store(copied) as store:
        both = rocketlens.story("order-1", "Orders", sources=[store, admin])
        direct = admin.story(msg_id)
        assert both.events[1].text == direct.events[1].text == store.story(msg_id).events[1].text
        assert direct.complete


def test_a_source_that_fails_makes_the_story_incomplete(world, tmp_path):
    running, _, msg_id = world
    story = rocketlens.story(msg_id, sources=[running.name_server, tmp_path / "none"])
    assert story.message is not None
    assert not story.complete


def test_sources_are_several(world):
    with pytest.raises(BadInput):
        rocketlens.story(KEY, sources=[])
    with pytest.raises(BadInput):
        rocketlens.story("", sources=[world[1]])
