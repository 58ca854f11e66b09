"""A message is expected: over restarts, at the deadline, and in a group. Clocks are the test's."""

from types import SimpleNamespace

import pytest

from rocketlens.client.cluster_story import ClusterStorySource
from rocketlens.errors import (
    AnswerIncomplete,
    BadInput,
    MessageNotFound,
    RocketLensError,
    TopicNotFound,
)
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.net.server import RemotingServer
from rocketlens.query import expect
from rocketlens.query.expect import MAX_WAIT_S, MIN_WAIT_S, ExpectRequest, expect_steps
from rocketlens.query.facts.group_state import GroupState
from rocketlens.query.request import FindRequest
from rocketlens.query.source import run, run_in_loop
from rocketlens.query.story.story import GroupStory, Story
from tests.support.clocks import Clock
from tests.support.fake_cluster import LOOPBACK, T0, ask
from tests.support.story_world import copy

HOUR_MS = 3_600_000


def expected(broker, admin, events, *, hours=10, said=None):
    """Return the coroutine that expects K while, at each pause, the next event happens."""
    clock, events = Clock(T0), iter(events)

    async def wait(seconds):
        assert 0 < seconds <= MAX_WAIT_S
        clock.now_ms += round(seconds * 1000)
        event = next(events, None)
        if event is not None:
            await event(broker, clock)

    message = FindRequest("K", ("T",), end=T0 + hours * HOUR_MS, max_num=1, oldest=True)
    steps = expect_steps(
        ExpectRequest(message), lambda: ClusterStorySource(admin.source), wait, said, clock
    )
    return run_in_loop(steps)


async def die(broker, _):
    await broker.die()


async def start(broker, _):
    broker.server = RemotingServer(broker.handlers())
    broker.server.listen(LOOPBACK, int(broker.address.rpartition(":")[2]))


async def store(broker, _):
    broker.store("T", keys="K")


async def break_down(broker, _):
    broker.err()


async def mend(broker, _):
    broker.fails_with = None


async def store_too_late(broker, clock):
    clock.now_ms = broker.now_ms = T0 + 11 * HOUR_MS
    broker.store("T", keys="K")


async def pass_the_time(_, clock):
    clock.now_ms = T0 + 11 * HOUR_MS


async def nothing(*_):
    pass


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((nothing, store), 0),
        ((die, nothing, start, store), 0),
        ((break_down, store, mend), 0),
        ((nothing, pass_the_time), MessageNotFound),
        ((store_too_late,), MessageNotFound),
        ((break_down, mend, pass_the_time), MessageNotFound),
        ((break_down, pass_the_time), AnswerIncomplete),
        ((die, pass_the_time), AnswerIncomplete),
    ],
    ids=lambda each: "-".join(one.__name__ for one in each) if isinstance(each, tuple) else None,
)
def test_a_key_is_found_over_restarts_and_the_last_answer_decides(events, outcome):
    async def scenario(cluster, admin):
        (broker,) = cluster.masters
        for server in cluster.name_servers:
            server.topics["T"] = [broker.name]
        broker.store("T", keys="other")
        said = []
        try:
            found = await expected(broker, admin, events, said=said.append)
        except RocketLensError as error:
            return error, said
        return found, said

    found, said = ask(scenario, timeout_s=60)
    assert said[0].startswith("not yet: K is not in any topic that was searched")
    if outcome:
        assert type(found) is outcome
        assert "the deadline" in str(found)
        assert outcome is not AnswerIncomplete or not found.answer.complete
    else:
        assert found.keys == ("K",)


class Failing:
    """A source whose only answer is an error."""

    name = "one"
    is_one_log = True

    def __init__(self, error):
        self.error = error

    def find(self, *_):
        raise self.error


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (TopicNotFound("no topic T"), MessageNotFound),
        (OSError(5, "damaged"), AnswerIncomplete),
        (BadInput("no key"), BadInput),
    ],
)
def test_an_error_of_the_source_is_not_an_absence(error, raised):
    request = ExpectRequest(FindRequest("K", ("T",), end=5))
    source = SimpleNamespace(source=Failing(error))
    steps = expect_steps(request, lambda: source, lambda _: pytest.fail("waits"), clock=lambda: 9)
    with pytest.raises(raised):
        run(steps)


def test_pauses_are_bounded_and_grow_with_what_an_answer_takes():
    clock, pauses = Clock(0), []

    class Slow(Failing):
        def find(self, *_):
            clock.now_ms += took_ms
            raise self.error

    def wait(seconds):
        pauses.append(seconds)
        clock.now_ms += round(seconds * 1000)

    source = SimpleNamespace(source=Slow(TopicNotFound("no")))
    for took_ms in (0, 2_000, 60_000):
        clock.now_ms, before = 0, len(pauses)
        request = ExpectRequest(FindRequest("K", ("T",), end=100_500))
        with pytest.raises(MessageNotFound):
            run(expect_steps(request, lambda: source, wait, clock=clock))
        assert pauses[before] == max(MIN_WAIT_S, min(4 * took_ms / 1000, MAX_WAIT_S))
        assert min(pauses) >= MIN_WAIT_S


@pytest.mark.parametrize(
    ("state", "since_ms", "raised"),
    [
        (GroupState.CONSUMED, None, None),
        (GroupState.CONSUMED, 4, None),
        (GroupState.CONSUMED, 6, MessageNotFound),
        (GroupState.NOT_YET, None, MessageNotFound),
        (GroupState.DEAD_LETTER, 4, MessageNotFound),
        (GroupState.PASSED_OFFLINE, None, AnswerIncomplete),
        (GroupState.UNKNOWN, None, AnswerIncomplete),
    ],
)
def test_a_group_has_consumed_it_only_if_its_story_says_so(monkeypatch, state, since_ms, raised):
    searched = (Coverage("one", SourceKind.BROKER, SourceState.SEARCHED),)
    group = GroupStory("g", state, "why", "", since_ms)
    told = Story("K", copy(), (), (), (group,), (), (), searched)

    def story_steps(*_):
        return told
        yield

    monkeypatch.setattr(expect, "story_steps", story_steps)
    request = ExpectRequest(FindRequest("K", end=5), "g")
    steps = expect_steps(request, lambda: None, None, clock=lambda: 9)
    if raised is None:
        assert run(steps) == copy()
    else:
        with pytest.raises(raised, match=f"group g is not known to have consumed it: {state}: why"):
            run(steps)
