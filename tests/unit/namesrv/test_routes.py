"""The tables of a name server, as RocketMQ's own keeps them."""

import pytest

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.namesrv import routes as routes_module
from rocketlens.namesrv.routes import RouteTable
from rocketlens.wire.bodies.tables import (
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
)
from rocketlens.wire.commands.brokers import RegisterBrokerRequest, RegisterBrokerResponse

A = "10.0.0.1:10911"
B = "10.0.0.2:10911"
SYSTEM = ("TBW102", "SELF_TEST_TOPIC")


def result_of(steps):
    """Do all steps of a registration."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Brokers:
    """Registers brokers with a table, at a time of the test's choosing."""

    def __init__(self):
        self.table = RouteTable()
        self.now_s = 0.0

    def register(
        self,
        name="broker-a",
        address=A,
        broker_id=0,
        topics=SYSTEM,
        *,
        stepwise=False,
        version=1,
        state=0,
        channel=None,
        cluster="c",
        **fields,
    ):
        configs = [each if isinstance(each, TopicConfig) else topic(each) for each in topics]
        body = RegisterBrokerBody(
            topic_config_table=TopicConfigTable(
                data_version=DataVersion(counter=version, state_version=state),
                topic_config_table={each.topic_name: each for each in configs},
            )
        )
        request = RegisterBrokerRequest(
            broker_name=name,
            broker_addr=address,
            cluster_name=cluster,
            ha_server_addr=address.replace("10911", "10912"),
            broker_id=broker_id,
            **fields,
        )
        steps = self.table.register(request, body, channel or address, self.now_s)
        return steps if stepwise else result_of(steps)

    def topics(self):
        return set(self.table.topic_names())

    def addrs(self, of_topic="TBW102"):
        route = self.table.route(of_topic)
        return {each.broker_name: dict(each.broker_addrs) for each in route.broker_datas}

    def queues(self, of_topic, name="broker-a"):
        route = self.table.route(of_topic)
        return next(each for each in route.queue_datas if each.broker_name == name)


def topic(name, queues=4, perm=6, flag=0):
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=flag,
    )


@pytest.fixture
def brokers():
    return Brokers()


def test_a_registered_master_is_in_routes_lists_and_cluster(brokers):
    assert brokers.register(topics=["T", *SYSTEM]) == RegisterBrokerResponse()
    route = brokers.table.route("T")
    assert route.queue_datas == (
        QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=6),
    )
    assert [(each.broker_name, each.broker_addrs, each.cluster) for each in route.broker_datas] == [
        ("broker-a", {0: A}, "c")
    ]
    info = brokers.table.cluster_info()
    assert dict(info.cluster_addr_table) == {"c": ("broker-a",)}
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: A}
    assert brokers.topics() == {"T", *SYSTEM}
    names = tuple(brokers.table.topic_names())
    assert tuple(brokers.table.topics_of_cluster("c")) == names
    assert not any(brokers.table.topics_of_cluster("other"))
    system = brokers.table.system_topics()
    assert (system.topic_list, system.broker_addr) == (("c", "broker-a"), A)
    assert brokers.table.route("unknown") is None


def test_a_table_without_brokers_answers_with_nothing(brokers):
    assert brokers.table.route("T") is None
    assert brokers.table.cluster_info().broker_addr_table == {}
    assert brokers.table.system_topics().broker_addr is None
    assert brokers.table.member_addrs("broker-a") == {}


def test_a_topic_of_two_brokers_has_the_queues_of_both(brokers):
    brokers.register(topics=[topic("T", 4), "X"])
    brokers.register("broker-b", B, topics=[topic("T", 8), "X"])
    assert brokers.queues("T").read_queue_nums == 4
    assert brokers.queues("T", "broker-b").read_queue_nums == 8
    assert brokers.addrs("T") == {"broker-a": {0: A}, "broker-b": {0: B}}


def test_topics_are_rewritten_only_when_the_data_version_changed(brokers):
    brokers.register(topics=[topic("T", 4), "X"], version=1)
    brokers.register(topics=[topic("T", 16), "X"], version=1)
    assert brokers.queues("T").write_queue_nums == 4
    brokers.register(topics=[topic("T", 16), "X"], version=2)
    assert brokers.queues("T").write_queue_nums == 16


def test_a_topic_that_was_deleted_here_comes_back_with_the_next_registration(brokers):
    brokers.register(topics=["T", *SYSTEM], version=1)
    brokers.table.delete_topic("T")
    assert "T" not in brokers.topics()
    brokers.register(topics=["T", *SYSTEM], version=1)
    assert "T" in brokers.topics()


def test_a_topic_that_a_later_registration_lacks_stays(brokers):
    brokers.register(topics=["T", *SYSTEM], version=1)
    brokers.register(topics=SYSTEM, version=2)
    assert "T" in brokers.topics()


def test_a_topic_is_deleted_in_one_cluster_only_if_one_is_named(brokers):
    brokers.register(topics=["T", "X"])
    brokers.register("broker-b", B, topics=["T", "X"], cluster="other")
    brokers.table.delete_topic("T", "c")
    assert [each.broker_name for each in brokers.table.route("T").queue_datas] == ["broker-b"]
    brokers.table.delete_topic("T", "no such cluster")
    brokers.table.delete_topic("T", "other")
    assert brokers.table.route("T") is None


def test_a_slave_does_not_write_topics_and_hears_where_its_master_is(brokers):
    brokers.register(topics=["T", "X"])
    answer = brokers.register(address=B, broker_id=1, topics=["S", "X"])
    assert answer == RegisterBrokerResponse(ha_server_addr="10.0.0.1:10912", master_addr=A)
    assert "S" not in brokers.topics()
    assert brokers.addrs("T") == {"broker-a": {0: A, 1: B}}
    assert brokers.table.member_addrs("broker-a") == {0: A, 1: B}


def test_a_slave_without_a_master_hears_nothing_and_has_no_topics(brokers):
    assert brokers.register(broker_id=1) == RegisterBrokerResponse()
    assert brokers.topics() == set()
    assert brokers.table.cluster_info().broker_addr_table["broker-a"].broker_addrs == {1: A}


def test_a_slave_that_may_act_as_master_writes_topics_read_only(brokers):
    brokers.register(broker_id=1, topics=["T", "X"], enable_acting_master=True)
    assert brokers.queues("T").perm == 4
    brokers.register(address=B, broker_id=0, topics=["T", "X"], enable_acting_master=True)
    assert brokers.queues("T").perm == 6


def test_when_a_master_goes_whose_slave_may_act_its_topics_become_read_only(brokers):
    brokers.register(topics=["T", "X"], enable_acting_master=True)
    brokers.register(address=B, broker_id=1, topics=["T", "X"], enable_acting_master=True)
    brokers.table.unregister("c", A, "broker-a")
    assert brokers.queues("T").perm == 4


def test_when_a_master_goes_its_topics_stay_while_a_slave_is_there(brokers):
    brokers.register(topics=["T", "X"])
    brokers.register(address=B, broker_id=1)
    brokers.table.unregister("c", A, "broker-a")
    assert brokers.addrs("T") == {"broker-a": {1: B}}
    assert brokers.queues("T").perm == 6
    brokers.table.unregister("c", B, "broker-a")
    assert brokers.table.route("T") is None


def test_a_slave_that_becomes_master_has_one_entry(brokers):
    brokers.register(address=B, broker_id=1)
    brokers.register(address=B, broker_id=0)
    assert brokers.addrs() == {"broker-a": {0: B}}


def test_a_broker_that_is_back_at_another_address_replaces_the_old_one(brokers):
    brokers.register(address=A)
    brokers.register(address=B)
    assert brokers.addrs() == {"broker-a": {0: B}}
    # What is left of the old address goes without harm.
    assert brokers.table.channel_closed(A) == [A]
    assert brokers.addrs() == {"broker-a": {0: B}}


def test_a_broker_with_an_older_state_does_not_replace_a_newer_one(brokers):
    brokers.register(address=A, state=5)
    assert brokers.register(address=B, state=4) == RegisterBrokerResponse()
    assert brokers.addrs() == {"broker-a": {0: A}}
    assert brokers.table.data_version("c", B) is None
    brokers.register(address=B, state=5)
    assert brokers.addrs() == {"broker-a": {0: B}}


def test_an_unknown_broker_with_exactly_one_topic_is_refused_and_leaves_no_trace(brokers):
    assert brokers.register(topics=["T"]) is None
    assert brokers.table.cluster_info().cluster_addr_table == {}
    assert brokers.topics() == set()
    brokers.register(topics=SYSTEM)
    assert brokers.register(topics=["T"], version=2) is not None
    assert "T" in brokers.topics()


def test_unregistering_the_last_broker_removes_name_cluster_and_topics(brokers):
    brokers.register()
    brokers.table.unregister("c", A, "broker-a")
    assert brokers.table.cluster_info().cluster_addr_table == {}
    assert brokers.table.cluster_info().broker_addr_table == {}
    assert brokers.topics() == set()
    brokers.table.unregister("c", A, "broker-a")


def test_a_name_that_moved_to_another_cluster_leaves_nothing_behind(brokers):
    brokers.register(cluster="c")
    brokers.register(cluster="d")
    brokers.table.unregister("d", A, "broker-a")
    assert brokers.table.cluster_info().cluster_addr_table == {}
    assert brokers.table.expire(1000.0) == [A]
    assert brokers.table.channel_closed(A) == []


def test_a_broker_is_dropped_120_s_after_its_last_registration_and_not_before(brokers):
    brokers.register(channel="channel-1")
    brokers.now_s = 60
    brokers.register(channel="channel-1")
    assert brokers.table.expire(180.0) == []
    assert brokers.table.expire(180.1) == ["channel-1"]
    assert brokers.topics() == set()
    assert brokers.table.expire(180.1) == []


def test_a_broker_may_ask_for_another_time_and_a_heartbeat_counts(brokers):
    brokers.register(heartbeat_timeout_ms=10_000)
    assert brokers.table.expire(10.0) == []
    brokers.table.touch("c", A, 10.0)
    brokers.table.touch("c", "10.9.9.9:1", 10.0)
    assert brokers.table.expire(20.0) == []
    assert brokers.table.expire(20.1) == [A]


def test_a_broker_goes_with_its_channel_and_only_with_its_last(brokers):
    brokers.register(channel="old")
    brokers.register(channel="new")
    assert brokers.table.channel_closed("old") == []
    assert brokers.topics() == set(SYSTEM)
    assert brokers.table.channel_closed("new") == [A]
    assert brokers.topics() == set()


def test_brokers_that_share_a_channel_go_together(brokers):
    brokers.register(channel="shared")
    brokers.register("broker-b", B, channel="shared")
    assert sorted(brokers.table.channel_closed("shared")) == [A, B]
    assert brokers.table.cluster_info().broker_addr_table == {}


def test_write_permission_is_taken_from_all_topics_of_a_broker_and_given_back(brokers):
    brokers.register(topics=["T", topic("R", perm=4), topic("I", perm=7)])
    brokers.register("broker-b", B, topics=["T", "X"])
    assert brokers.table.wipe_write_permission("broker-a") == 3
    assert [brokers.queues(each).perm for each in ("T", "R", "I")] == [4, 4, 5]
    assert brokers.queues("T", "broker-b").perm == 6
    # A registration without a change does not undo it.
    brokers.register(topics=["T", topic("R", perm=4), topic("I", perm=7)])
    assert brokers.queues("T").perm == 4
    assert brokers.table.add_write_permission("broker-a") == 3
    assert [brokers.queues(each).perm for each in ("T", "R", "I")] == [6, 6, 6]
    assert brokers.table.wipe_write_permission("unknown") == 0


def test_one_topic_is_taken_in_when_all_its_brokers_are_known(brokers):
    brokers.register()
    brokers.table.register_topic("T", [QueueData(broker_name="broker-a", read_queue_nums=2)])
    assert brokers.queues("T").read_queue_nums == 2
    brokers.table.register_topic(
        "U", [QueueData(broker_name="broker-a"), QueueData(broker_name="unknown")]
    )
    assert "U" not in brokers.topics()


def test_unit_topics_are_told_by_their_flags(brokers):
    brokers.register(topics=[topic(f"flag-{flag}", flag=flag) for flag in range(4)])

    def named(**flags):
        return tuple(each for each in brokers.table.unit_topics(**flags) if each is not None)

    assert named(unit=True, unit_sub=None) == ("flag-1", "flag-3")
    assert named(unit=None, unit_sub=True) == ("flag-2", "flag-3")
    assert named(unit=False, unit_sub=True) == ("flag-2",)


def test_the_order_of_a_topic_is_in_its_route(brokers):
    brokers.register(topics=["T", "X"])
    assert brokers.table.route("T", "broker-a:4").order_topic_conf == "broker-a:4"


def test_names_that_are_empty_or_too_long_are_refused_and_change_nothing(brokers):
    for wrong in ("", "x" * (limits.MAX_ADDRESS_CHARACTERS + 1)):
        for field in ({"name": wrong}, {"address": wrong}, {"cluster": wrong}):
            with pytest.raises(BadInput, match="characters"):
                brokers.register(**field)
    for wrong in ("", "x" * (limits.MAX_TOPIC_CHARACTERS + 1)):
        with pytest.raises(BadInput, match="a topic has 1 to 255 characters"):
            brokers.register(topics=[wrong, "X"])
    assert brokers.table.cluster_info().cluster_addr_table == {}


def test_the_tables_do_not_grow_beyond_their_limits(brokers, monkeypatch):
    monkeypatch.setattr(routes_module, "MAX_NAMESRV_QUEUE_DATAS", 5)
    brokers.register(topics=["T", "X", "Y"])
    with pytest.raises(BadInput, match="3 more exceed the maximum"):
        brokers.register("broker-b", B, topics=["T", "X", "Y"])
    assert brokers.addrs("T") == {"broker-a": {0: A}}
    brokers.table.delete_topic("T")
    brokers.register("broker-b", B, topics=["U", "V"])
    monkeypatch.setattr(routes_module, "MAX_NAMESRV_BROKERS", 2)
    with pytest.raises(BadInput, match="registered, the maximum"):
        brokers.register("broker-c", "10.0.0.3:10911")
    # Who is here already is not refused.
    assert brokers.register(topics=["X", "Y"]) is not None


def test_others_are_served_while_many_topics_are_taken_in(brokers, monkeypatch):
    monkeypatch.setattr(routes_module, "TOPICS_AT_ONCE", 10)
    names = [f"T{number}" for number in range(95)]
    steps = brokers.register(topics=names, stepwise=True)
    seen = []
    for _ in steps:
        seen.append(len(brokers.topics()))
        assert all(brokers.table.route(name) for name in brokers.topics())
    assert len(seen) == 18
    assert seen == sorted(seen)
    assert brokers.topics() == set(names)


def test_a_broker_that_is_dropped_while_its_topics_are_taken_in_leaves_none(brokers, monkeypatch):
    monkeypatch.setattr(routes_module, "TOPICS_AT_ONCE", 10)
    steps = brokers.register(topics=[f"T{number}" for number in range(95)], stepwise=True)
    for _ in steps:
        if len(brokers.topics()) > 30:
            brokers.table.unregister("c", A, "broker-a")
    assert brokers.topics() == set()
    assert brokers.table.cluster_info().broker_addr_table == {}


def test_a_slave_that_leaves_while_its_master_registers_does_not_come_back(brokers, monkeypatch):
    monkeypatch.setattr(routes_module, "TOPICS_AT_ONCE", 10)
    brokers.register(topics=SYSTEM)
    brokers.register(address="10.0.0.2:10911", broker_id=1)
    steps = brokers.register(topics=[f"T{number}" for number in range(95)], stepwise=True)
    next(steps)
    brokers.table.unregister("c", "10.0.0.2:10911", "broker-a")
    assert brokers.addrs()["broker-a"] == {0: A}
    list(steps)
    assert brokers.addrs()["broker-a"] == {0: A}


def test_a_broker_that_is_back_has_the_queues_that_it_tells(brokers):
    brokers.register(address=A, topics=[topic("T", 4), *SYSTEM])
    brokers.register(address=B, topics=[topic("T", 99), *SYSTEM], version=7)
    # Its version is as before, and it is registered over the same connection.
    brokers.register(address=A, topics=[topic("T", 4), *SYSTEM])
    assert brokers.queues("T").write_queue_nums == 4


@pytest.mark.parametrize("state", [1, 5, 2**31 - 1])
def test_a_state_version_keeps_no_broker_out_that_has_none(brokers, state):
    brokers.register(address=A)
    brokers.register(address=B, state=state)
    brokers.register(address=A)
    assert brokers.addrs() == {"broker-a": {0: A}}
    with pytest.raises(BadInput, match="stateVersion"):
        brokers.register(address=B, state=2**31)


def test_a_broker_that_goes_costs_its_own_topics_only(brokers, monkeypatch):
    brokers.register(topics=[f"T{n}" for n in range(100)])
    brokers.register(name="broker-b", address=B, topics=["T1", "Mine", "Other"])
    dropped = []
    drop = brokers.table._drop_topics
    monkeypatch.setattr(
        brokers.table,
        "_drop_topics",
        lambda names, topics: (dropped.extend(topics), drop(names, topics)),
    )
    brokers.table.channel_closed(B)
    assert sorted(dropped) == ["Mine", "Other", "T1"]


def test_brokers_that_come_and_go_are_told_and_those_that_stay_are_not(brokers, caplog):
    caplog.set_level("INFO")
    brokers.register(topics=["T", *SYSTEM])
    brokers.register(topics=["T", *SYSTEM], version=2)
    brokers.table.leave("c", A, "broker-a", A)
    brokers.table.leave("c", A, "broker-a", A)
    assert caplog.messages == [
        f"broker broker-a (id 0) of c at {A} is registered with {1 + len(SYSTEM)} topics",
        f"broker broker-a of c at {A} unregisters",
    ]
