"""``rocketlens doctor`` over a cluster."""

import pytest

from rocketlens.cli.doctor.doctor_sources import checks_of
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.group import FoundGroup, GroupQueue
from rocketlens.model.status import BrokerStatus, ClusterStatus
from rocketlens.model.topic import FoundTopic, TopicQueue, TopicsAnswer
from rocketlens.testing import cluster

NOW_MS = 1_700_000_000_000
SOUND = BrokerStatus("c", "a", 0, "10.0.0.1:10911", version="V5_5_0", disk_ratio=0.2)


def checks(*brokers, groups=(), coverage=(), newest_ms=NOW_MS):
    status = ClusterStatus(("10.0.0.9:9876",), brokers, 3, 0, groups, coverage)
    queue = TopicQueue("a", 0, 0, 5, newest_ms=newest_ms)
    topics = TopicsAnswer((FoundTopic("T", (queue,)),), ())
    return list(checks_of(status, topics, NOW_MS))


def bad(*brokers, **others):
    """Return the only check that is not ok."""
    (check,) = [each for each in checks(*brokers, **others) if each.state != "ok"]
    assert check.mend or check.state == "note"
    return check


def test_a_sound_cluster_is_ok_line_by_line():
    found = checks(SOUND)
    assert {each.state for each in found} == {"ok"}
    assert [each.name for each in found] == ["name servers", "broker", "clock"]
    assert "a (10.0.0.1:10911), master, 5.5.0" in found[1].detail


def test_a_broker_that_does_not_answer_is_a_failure():
    check = bad(SOUND, BrokerStatus("c", "b", 0, "10.0.0.2:10911", error="refused"))
    assert (check.state, check.name) == ("fail", "broker")
    assert "b (10.0.0.2:10911): refused" in check.detail
    assert "rocketlens find --forget-broker b" in check.mend


@pytest.mark.parametrize(("ratio", "what"), [(0.8, "deleted early"), (0.93, "refused")])
def test_a_disk_that_is_nearly_full_is_a_warning(ratio, what):
    check = bad(with_ratio(ratio))
    assert (check.state, check.name) == ("warn", "disk")
    assert what in check.detail


def with_ratio(ratio):
    return BrokerStatus("c", "a", 0, "10.0.0.1:10911", version="V5_5_0", disk_ratio=ratio)


def test_a_slave_without_a_master_is_a_warning():
    check = bad(SOUND, BrokerStatus("c", "b", 1, "10.0.0.2:10911", version="V5_5_0"))
    assert "b has no master" in check.detail


def test_brokers_of_different_versions_are_a_warning():
    check = bad(SOUND, BrokerStatus("c", "b", 0, "10.0.0.2:10911", version="V4_9_7"))
    assert (check.name, check.detail) == ("versions", "brokers of different versions: 4.9.7, 5.5.0")


def test_a_message_that_is_stored_in_the_future_is_a_warning_about_the_clock():
    assert bad(SOUND, newest_ms=NOW_MS + 60_000).name == "clock"
    assert "60 s after now" in bad(SOUND, newest_ms=NOW_MS + 60_000).detail


def test_an_offset_beyond_its_queue_names_group_and_queue():
    queues = (GroupQueue("T", "a", 2, 10, 11, None),)
    group = FoundGroup("g", None, None, None, queues, 0)
    check = bad(SOUND, groups=(group,))
    assert (check.state, check.name) == ("warn", "consumer offset")
    assert "group g goes on at offset 11 of T/a/2, which ends at 10" in check.detail
    assert check.mend.startswith("rocketlens mqadmin resetOffsetByTime -g g -t T")


def test_dead_letters_are_told_with_the_command_that_has_them_again():
    group = FoundGroup("g", None, None, None, (), 4)
    check = bad(SOUND, groups=(group,))
    assert check.state == "note"
    assert "rocketlens dlq redrive g" in check.detail


def test_a_name_server_that_does_not_answer_fails():
    failed = Coverage("10.0.0.8:9876", SourceKind.BROKER, SourceState.FAILED, None, "refused")
    check = bad(SOUND, coverage=(failed,))
    assert (check.state, check.detail) == ("fail", "10.0.0.8:9876: refused")


def test_a_cluster_without_brokers_fails_with_what_starts_one():
    none = Coverage("name servers", SourceKind.BROKER, SourceState.FAILED, None, "no broker")
    check = bad(SOUND, coverage=(none,))
    assert (check.state, check.mend) == (
        "fail",
        "start a broker, with these name servers in its namesrvAddr",
    )


def test_a_broker_that_is_not_registered_any_more_fails():
    error = "it was last seen 2026-11-20T10:00:00Z at 10.0.0.2:10911 and is not registered now"
    gone = Coverage("broker-b", SourceKind.BROKER, SourceState.FAILED, None, error)
    check = bad(SOUND, coverage=(gone,))
    assert (check.state, check.detail) == ("fail", f"broker-b: {error}")


def test_a_running_cluster_is_checked_and_one_that_is_not_there_fails(run, tmp_path):
    with cluster(tmp_path) as running:
        done = run("doctor", "--namesrv", running.name_server)
        assert done.code == 0
        assert f"({running.broker}), master, 5.5.0" in done.out
        gone = running.name_server
    done = run("doctor", "--namesrv", gone)
    assert done.code == 1
    (line,) = [each for each in done.out.splitlines() if each.startswith("fail")]
    assert "name servers" in line
    assert "; to mend: " in line
