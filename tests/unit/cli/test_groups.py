"""``rocketlens groups`` over a cluster and over the directory of its store."""

import json
import re
import time
from types import SimpleNamespace

import pytest

from rocketlens import Store, SyncPushConsumer
from rocketlens.cli import groups
from rocketlens.client.send.message import Message
from rocketlens.model.group import FoundGroup, GroupQueue
from rocketlens.testing import cluster

GROUP = "billing"
RETRY_TOPIC, DEAD_LETTER_TOPIC = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"


def consume(consumer, count):
    for _, message in zip(range(count), consumer, strict=False):
        consumer.ack(message)
    consumer.commit()


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What a cluster says with a member online and without, and what its store says."""
    directory = tmp_path_factory.mktemp("rocketmq")
    with cluster(directory) as running, running.admin() as admin, running.producer() as producer:
        for number in range(5):
            producer.send(Message("Orders", f"{number}", tags="A"))
        consumer = SyncPushConsumer(running.name_server, group=GROUP, begin="first")
        consumer.subscribe("Orders", "A || B")
        with consumer:
            consume(consumer, 5)
            online = admin.groups(GROUP)
        for topic, count in (("Orders", 3), (RETRY_TOPIC, 1), (DEAD_LETTER_TOPIC, 2)):
            for number in range(count):
                producer.send(Message(topic, f"{number}", tags="A"))
        yield online, admin.groups(), running


def check(group):
    assert group["name"] == GROUP
    assert (group["lag"], group["to_retry"], group["dead_letters"]) == (3, 1, 2), group["queues"]
    assert group["last_consumed_ms"] is not None
    assert {queue["topic"] for queue in group["queues"]} == {"Orders", RETRY_TOPIC}


def test_members_are_named_while_they_are_online(answers):
    online, offline, _ = answers
    [group] = online.groups
    [member] = group.members
    assert (member.language, member.address.partition(":")[0]) == ("PYTHON", "127.0.0.1")
    assert group.subscriptions["Orders"] == "A || B"
    assert (group.message_model, group.lag, group.to_retry, group.dead_letters) == (
        "CLUSTERING",
        0,
        0,
        0,
    )
    assert [(each.name, each.members) for each in offline.groups] == [(GROUP, ())]
    assert online.complete
    assert offline.complete


def test_a_cluster_says_how_far_its_groups_are(run, answers):
    *_, rocketmq = answers
    done = run("groups", GROUP, "--namesrv", rocketmq.name_server, "-o", "json")
    answer = json.loads(done.out)
    assert (done.code, answer["complete"]) == (0, True)
    [group] = answer["groups"]
    check(group)
    assert group["members"] == []
    done = run("groups", "--namesrv", rocketmq.name_server)
    titles, row = (line.split("\t") for line in done.out.splitlines())
    assert dict(zip(titles, row, strict=True)) | {"last_consumed": "", "behind": ""} == {
        "group": GROUP,
        "members": "0",
        "model": "?",
        "lag": "3",
        "behind": "",
        "to_retry": "1",
        "dead_letters": "2",
        "last_consumed": "",
    }


def test_a_group_that_is_not_there_is_not_found(run, answers):
    *_, rocketmq = answers
    done = run("groups", "biling", "--namesrv", rocketmq.name_server)
    assert (done.code, done.out) == (1, "")
    assert "group 'biling' does not exist; did you mean billing?" in done.err


def test_groups_of_brokers_are_shown_when_they_are_asked_for(run, answers):
    *_, rocketmq = answers
    done = run("groups", "TOOLS_CONSUMER", "--namesrv", rocketmq.name_server)
    assert (done.code, "TOOLS_CONSUMER" in done.out) == (0, True)


def test_a_broker_that_cannot_be_asked_is_named_then_its_store_has_the_same(run, answers):
    _, offline, rocketmq = answers
    store, name_server = rocketmq.store, rocketmq.name_server
    rocketmq.kill_broker()
    done = run("groups", "--namesrv", name_server)
    assert done.code == 3
    assert "broker-a" in done.err
    assert "INCOMPLETE" in done.err
    rows = [line.split("\t") for line in done.out.splitlines()]
    # The name servers still name its topics, and nothing is known of the group.
    assert rows[1:] == [[GROUP, "?", "?", "?", "?", "?", "?", "?"]]
    rocketmq.stop()
    done = run("groups", GROUP, "--store", str(store), "-o", "json")
    [group] = json.loads(done.out)["groups"]
    assert group["members"] is None
    assert (group["to_retry"], group["dead_letters"]) == (1, 2)
    # The newest dead letter is as old by the queue's file as by its broker.
    newest = [Store(store).groups(GROUP).groups[0], offline.groups[0]]
    assert newest[0].last_dead_letter_ms == newest[1].last_dead_letter_ms is not None


@pytest.mark.parametrize(
    ("command", "printed"),
    [("groups", "group\tmembers\tmodel\tlag\tbehind"), ("status", "closed\tcleanly")],
)
def test_it_is_printed_again_until_ctrl_c(run, golden, monkeypatch, command, printed):
    waited = []

    def wait(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("rocketlens.cli.groups.time.sleep", wait)
    done = run(command, "--watch", "7", "--store", str(golden("5.5.0").store))
    assert (done.code, waited) == (130, [7, 7, 7])
    assert done.out.count(printed) == 3


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_watched_groups_have_the_rate_between_two_samples(run, tmp_path, monkeypatch, output):
    now_s = [100.0]
    with cluster(tmp_path / "watched") as running, running.producer() as producer:
        for number in range(9):
            producer.send(Message("Orders", f"{number}"))
        counts = [6, 3, 0]
        consumer = SyncPushConsumer(running.name_server, group=GROUP, begin="first")
        consumer.subscribe("Orders")

        def wait(seconds):
            """Let the group consume some messages, and the time pass."""
            if not counts:
                raise KeyboardInterrupt
            consume(consumer, counts.pop(0))
            now_s[0] += seconds

        with consumer:
            consume(consumer, 0)
            # Of these modules alone: clients in other threads sleep, too.
            clock = SimpleNamespace(monotonic=lambda: now_s[0], time_ns=time.time_ns)
            monkeypatch.setattr("rocketlens.cli.groups.time", clock)
            monkeypatch.setattr("rocketlens.cli.options.time", SimpleNamespace(sleep=wait))
            done = run("groups", "--watch", "2", "-n", running.name_server, "-o", output)
    if output == "json":
        rates = [json.loads(line)["groups"] for line in done.out.splitlines()]
        rates = [[each["consumed_per_second"] for each in groups] for groups in rates]
        assert rates[-2:] == [[1.5], [0.0]]
        return
    rows = [re.split("[\t,]", line) for line in done.out.splitlines()]
    assert {row[-1] for row in rows if row[0] == "group"} == {"consumed/s"}
    assert [row[-1] for row in rows if row[0] == GROUP][-2:] == ["1.5", "0.0"]


def test_offsets_that_were_reset_have_no_rate():
    rates = groups._Rates()
    at = [10.0]

    def sample(offset, monkeypatch):
        queue = GroupQueue("T", "b", 0, 100, offset, None)
        group = FoundGroup(GROUP, (), None, None, (queue,), None)
        with monkeypatch.context() as patch:
            patch.setattr(groups, "time", SimpleNamespace(monotonic=lambda: at[0]))
            rates.add([group])
        at[0] += 4.0
        return rates.by_group.get(GROUP)

    with pytest.MonkeyPatch.context() as patch:
        assert [sample(each, patch) for each in (50, 90, 20, 22)] == [None, 10.0, None, 0.5]


def test_watching_goes_on_when_the_cluster_is_gone_for_a_time(run, monkeypatch):
    waited = []
    with cluster() as running:
        name_server = running.name_server

        def wait(seconds):
            waited.append(seconds)
            if len(waited) == 1:
                running.stop()
            if len(waited) == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr("rocketlens.cli.groups.time.sleep", wait)
        done = run("groups", "--watch", "7", "-n", name_server)
    assert (done.code, waited) == (130, [7, 7, 7])
    assert "tried again in 7" in done.err
    first = run("groups", "--watch", "7", "-n", name_server)
    assert first.code == 2
