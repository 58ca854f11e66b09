"""What follows from the state of a cluster."""

from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.group import FoundGroup, GroupClient
from rocketlens.model.status import BrokersAnswer, BrokerStatus, ClusterStatus


def broker(broker_id, **fields):
    return BrokerStatus("c", "a", broker_id, "127.0.0.1:1", **fields)


def group(name, *clients):
    members = tuple(GroupClient(each, "127.0.0.1:2", "JAVA", 1) for each in clients)
    return FoundGroup(name, members, None, {}, (), 0)


def cluster(*brokers, groups=()):
    return ClusterStatus(("127.0.0.1:9876",), brokers, 0, 0, groups, ())


def test_log_bytes_need_both_ends():
    assert broker(0, min_offset=3, end_offset=10).log_bytes == 7
    assert broker(0, end_offset=10).log_bytes is None


def test_clients_of_several_groups_count_once_and_slaves_do_not_count():
    found = cluster(
        broker(0, producers=2), broker(1), groups=(group("g", "x", "y"), group("h", "x"))
    )
    assert (found.producers, found.consumers) == (2, 2)


def test_a_count_that_lacks_a_broker_is_not_known():
    unknown = FoundGroup("g", None, None, None, None, None)
    found = cluster(broker(0, producers=2), broker(0), groups=(group("h", "x"), unknown))
    assert found.producers is found.consumers is None


def test_nothing_searched_is_not_complete():
    assert not cluster().complete


def test_a_broker_is_as_far_behind_as_the_slower_of_queues_and_index():
    assert broker(0, dispatch_behind_bytes=3, index_behind_bytes=10).behind_bytes == 10
    assert broker(0, dispatch_behind_bytes=3).behind_bytes == 3
    assert broker(0).behind_bytes is None


def test_brokers_of_which_one_failed_are_not_complete():
    searched = Coverage("a", SourceKind.BROKER, SourceState.SEARCHED)
    failed = Coverage("b", SourceKind.BROKER, SourceState.FAILED, None, "refused")
    assert BrokersAnswer((broker(0),), (searched,)).complete
    assert not BrokersAnswer((broker(0),), (searched, failed)).complete
