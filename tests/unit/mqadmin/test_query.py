"""mqadmin's options that choose what is asked and done, on a cluster of one broker."""

import pytest


@pytest.mark.parametrize("command", ["queryMsgById", "queryMsgByUniqueKey"])
def test_handing_a_message_to_a_consumer_is_refused_and_nothing_else_is_done(
    mqadmin, sent, command
):
    words = ("-t", "T", "-i", sent.msg_id, "-g", "group")
    done = mqadmin(command, *words, "-d", "client")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    # One of the two means nothing, there as here.
    assert mqadmin(command, *words).code == 0


@pytest.mark.parametrize("command", ["queryMsgById", "queryMsgByUniqueKey", "queryMsgByKey"])
def test_only_the_brokers_of_one_cluster_are_asked(mqadmin, sent, command):
    wanted = ("-k", "K1") if command == "queryMsgByKey" else ("-i", sent.msg_id)
    words = ("-t", "T", *wanted)
    found = mqadmin(command, *words, "-c", "DefaultCluster")
    assert (found.code, sent.msg_id in found.out) == (0, True)
    other = mqadmin(command, *words, "-c", "Another")
    assert (other.code, other.out, other.err.count("\n")) == (2, "", 1)
    assert "not on a broker of cluster Another" in other.err
    light = mqadmin(command, "-t", "%LMQ%x", *wanted, "-c", "T")
    assert (light.code, light.out) == (2, "")
    assert "light topic" in light.err
