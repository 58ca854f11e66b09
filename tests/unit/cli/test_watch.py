"""``rocketlens watch``: exit codes, the command that it runs, and what it refuses."""

import re
from itertools import chain, repeat

import pytest

from rocketlens import SyncPushConsumer
from rocketlens.client.send.message import Message
from rocketlens.query import expect
from rocketlens.testing import cluster

GROUP = "billing"


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory):
    """A cluster with a message that its group has consumed."""
    with cluster(tmp_path_factory.mktemp("rocketmq")) as running:
        with running.producer() as producer:
            producer.send(Message("Orders", "paid", keys="K"))
        consumer = SyncPushConsumer(running.name_server, group=GROUP, begin="first")
        consumer.subscribe("Orders")
        consumer.listen(lambda *_: None)
        with consumer, running.admin() as admin:
            consumed = admin.expect("K", "Orders", by="in 1h", consumed_by=GROUP)
            assert consumed.body == b"paid"
            yield running


@pytest.fixture
def passed(monkeypatch):
    """The time passes while the first question is asked."""
    clock = chain([0], repeat(2**62))
    monkeypatch.setattr(expect, "_now_ms", lambda: next(clock))


@pytest.mark.parametrize("options", [(), ("-t", "Orders"), ("--consumed-by", GROUP), ("--store",)])
def test_a_message_that_is_there_is_printed_at_once(run, rocketmq, options):
    source = (rocketmq.store,) if options == ("--store",) else ("-n", rocketmq.name_server)
    done = run("watch", "K", "--by", "in 1h", *options, *source)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Orders/")
    assert "  stored 20" in done.out


def test_a_store_is_watched_as_a_cluster_is(run, rocketmq, passed):
    source = ("--store", rocketmq.store)
    # Its files do not tell whether clients are online, and offsets are written now and then.
    done = run("watch", "K", "--by", "in 1h", "--consumed-by", GROUP, *source)
    assert (done.code, done.out) == (3, "")
    assert re.search(
        f"group {GROUP} is not known to have consumed it: (passed|unknown): ", done.err
    )


def test_a_group_that_no_broker_knows_may_be_one_of_a_broker_that_is_gone(run, rocketmq, passed):
    words = ("watch", "K", "--by", "in 1h", "--consumed-by", "biling", "-n", rocketmq.name_server)
    done = run(*words)
    assert (done.code, done.out) == (3, "")
    assert "what group biling did: group 'biling' does not exist" in done.err


def test_a_command_gets_the_message_and_its_failure_is_told(run, rocketmq, tmp_path):
    file = tmp_path / "found"
    there = ("watch", "K", "--by", "in 1h", "-n", rocketmq.name_server, "--exec")
    names = " ".join(f'"$ROCKETLENS_{name}"' for name in ("ID", "TOPIC", "KEY"))
    done = run(*there, f"echo {names} > '{file}'")
    assert done.code == 0
    assert file.read_text().split() == [done.out.split()[1], "Orders", "K"]
    done = run(*there, "exit 7")
    assert (done.code, done.err) == (2, "rocketlens: --exec ended with exit code 7\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("other",), "other is not in any topic that was searched"),
        (("K", "-t", "Odrers"), "did you mean Orders?"),
        (
            ("K", "--consumed-by", "TOOLS_CONSUMER"),
            "group TOOLS_CONSUMER is not known to have consumed it: never_subscribed: ",
        ),
    ],
)
def test_a_time_that_passes_is_no(run, rocketmq, passed, words, said):
    done = run("watch", *words, "--by", "in 1h", "-n", rocketmq.name_server)
    assert (done.code, done.out) == (1, ""), done.err
    assert said in done.err, done.err


@pytest.mark.parametrize("group", [(), ("--consumed-by", GROUP)])
def test_what_cannot_be_known_at_the_deadline_is_neither(run, tmp_path, passed, group):
    with cluster(tmp_path) as rocketmq:
        rocketmq.kill_broker()
        done = run("watch", "K", "--by", "in 1h", *group, "-n", rocketmq.name_server)
    assert (done.code, done.out) == (3, "")
    assert "broker-a" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "2h"), "which has passed: give a time to come, such as 'in 2h'"),
        (("--by", "soon"), "--by 'soon' is not a time"),
        (("--by", "in 1h", "-t", ""), "topic"),
        (("--by", "in 1h", "--archive", "a"), "--archive stands alone here"),
    ],
)
def test_what_cannot_be_meant_is_refused(run, rocketmq, words, said):
    done = run("watch", "K", *words, "-n", rocketmq.name_server)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
