"""Each connection has its turn in the thread of look-ups, and none waits long."""

import asyncio

import pytest

from rocketlens.broker.lookup.turns import FRESH_TURNS, Busy, LookUpLimits, Turns
from tests.support.clocks import Seconds

BOUNDS = LookUpLimits(of_one=5, of_all=8, work_s=10, wait_s=60)


class World:
    """A thread that is kept from working until it is let go."""

    def __init__(self, bounds=BOUNDS):
        self.clock = Seconds(0.0)
        self.work_clock = Seconds(0.0)
        self.turns = Turns("test-turns", bounds, self.clock, self.work_clock)
        self.did = []
        assert self.turns.try_begin(object())

    def put(self, owner, name, pieces=1):
        return self.turns.put(owner, self.work(name, pieces))

    def work(self, name, pieces):
        try:
            for _ in range(pieces - 1):
                self.did.append(name)
                if (yield):
                    return f"{name} late"
            self.did.append(name)
            return name
        finally:
            self.did.append(f"{name} end")

    def begun(self):
        """What was worked on, in order."""
        return [name for name in self.did if not name.endswith("end")]


class Peer:
    is_open = True


@pytest.fixture
async def world():
    world = World()
    yield world
    world.turns.close()


async def test_each_connection_has_its_turn(world):
    first, second = Peer(), Peer()
    asked = [world.put(first, f"a{number}", 2) for number in range(3)]
    asked += [world.put(second, f"b{number}", 2) for number in range(3)]
    world.turns.end()
    assert await asyncio.gather(*asked) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    for number in (1, 2):
        assert world.did.index(f"b{number - 1} end") < world.did.index(f"a{number} end")


async def test_what_needs_one_piece_waits_for_no_long_look_up(world):
    long = [world.put(Peer(), f"long{number}", 10**9) for number in range(7)]
    world.turns.end()
    for number in range(20):
        assert await world.put(Peer(), f"short{number}") == f"short{number}"
    assert not any(future.done() for future in long)


async def test_what_needs_one_piece_waits_for_no_long_look_up_of_its_own_connection(world):
    asker = Peer()
    long = [world.put(asker, f"long{number}", 10**9) for number in range(3)]
    short = [world.put(asker, f"first{number}") for number in range(2)]
    world.turns.end()
    assert await asyncio.gather(*short) == ["first0", "first1"]
    for number in range(20):
        assert await world.put(asker, f"short{number}") == f"short{number}"
    assert not any(future.done() for future in long)
    assert {"long0", "long1", "long2"} <= set(world.did)


async def test_long_look_ups_of_a_connection_are_done_one_after_another(world):
    asker = Peer()
    asked = [world.put(asker, f"long{number}", 50) for number in range(3)]
    world.turns.end()
    await asyncio.gather(*asked)
    ended = [name for name in world.did if name.endswith("end")]
    assert ended == ["long0 end", "long1 end", "long2 end"]
    assert world.did.index("long0 end") < 60


async def test_long_look_ups_go_on_though_short_ones_never_end(world):
    long = world.put(Peer(), "long", 3)
    short = [world.put(Peer(), f"short{number}") for number in range(7)]
    world.turns.end()
    await asyncio.gather(long, *short)
    turns = [place for place, name in enumerate(world.begun()) if name == "long"]
    assert turns[1] - turns[0] <= FRESH_TURNS + 1


async def test_more_than_the_bound_of_a_connection_and_of_all_is_refused(world):
    first, second = Peer(), Peer()
    asked = [world.put(first, "a") for _ in range(5)]
    with pytest.raises(Busy, match="5 look-ups of this connection wait"):
        world.put(first, "a")
    asked += [world.put(second, "b") for _ in range(3)]
    with pytest.raises(Busy, match="8 look-ups wait"):
        world.put(second, "b")
    asked.append(world.put(None, "the broker's own"))
    world.turns.end()
    assert len(await asyncio.gather(*asked)) == 9
    assert world.turns.waiting == 0
    assert await world.put(first, "again") == "again"


async def test_what_a_connection_asked_for_is_dropped_when_it_is_gone(world):
    gone, other = Peer(), Peer()
    dropped = [world.put(gone, f"gone{number}", 10**9) for number in range(3)]
    kept = world.put(other, "other", 2)
    world.turns.end()
    assert await kept == "other"
    world.turns.drop(gone)
    assert world.turns.waiting == 0
    assert all(future.cancelled() for future in dropped)
    assert await world.put(other, "later") == "later"
    begun = {name for name in world.did if name.startswith("gone") and "end" not in name}
    assert {f"{name} end" for name in begun} <= set(world.did)
    count = len(world.did)
    assert await world.put(other, "last") == "last"
    assert len(world.did) == count + 2


async def test_a_connection_that_ended_is_not_worked_for(world):
    gone, other = Peer(), Peer()
    asked = world.put(gone, "gone", 10**9)
    gone.is_open = False
    kept = world.put(other, "other")
    world.turns.end()
    assert await kept == "other"
    with pytest.raises(Busy, match="the connection is closed"):
        await asked
    assert "gone" not in world.did


def takes(world, seconds):
    """A look-up that takes so long."""
    world.work_clock.now_s += seconds
    return "took"
    yield


@pytest.mark.parametrize("clock", ["clock", "work"])
async def test_a_look_up_ends_with_what_it_has_when_its_time_is_over(world, clock):
    asked = world.put(Peer(), "long", 10**9)
    world.turns.end()
    assert await world.put(Peer(), "short") == "short"
    if clock == "clock":
        world.clock.now_s = 60.5
    else:
        # Somebody else's.
        assert await world.turns.put(Peer(), takes(world, 10.5)) == "took"
    assert await asked == "long late"


@pytest.mark.parametrize("clock", ["clock", "work"])
async def test_a_look_up_that_waited_too_long_to_begin_is_answered_busy(world, clock):
    before = world.turns.put(Peer(), takes(world, 10.5 if clock == "work" else 0))
    asked, own = world.put(Peer(), "late"), world.put(None, "own")
    world.clock.now_s = 60.5 if clock == "clock" else 0
    world.turns.end()
    with pytest.raises(Busy, match="this one timed out"):
        await asked
    assert await own == "own"
    await asyncio.wait((before,))
    assert (before.exception() is None) == (clock == "work")
    assert world.did == ["own", "own end"]


async def test_an_error_is_the_answer_of_its_look_up_alone(world):
    def fails():
        raise ValueError("wrong")
        yield

    asker = Peer()
    failing, next_one = world.turns.put(asker, fails()), world.put(asker, "next")
    world.turns.end()
    with pytest.raises(ValueError, match="wrong"):
        await failing
    assert await next_one == "next"


async def test_who_waits_when_it_closes_is_let_go(world):
    asked = [world.put(Peer(), f"a{number}", 10**9) for number in range(3)]
    world.turns.end()
    assert await world.put(Peer(), "short") == "short"
    world.turns.close()
    assert all(future.cancelled() for future in asked)
    with pytest.raises(Busy, match="stopping"):
        world.put(Peer(), "after")


async def test_the_thread_is_free_for_the_event_loop_once_an_answer_is_there(world):
    asker = Peer()
    asked = world.put(asker, "a")
    assert not world.turns.try_begin(asker)
    world.turns.end()
    for _ in range(100):
        await asked
        assert world.turns.try_begin(asker)
        world.turns.end()
        asked = world.put(asker, "a")


async def test_what_the_broker_does_itself_takes_no_look_ups_time(world):
    own = world.turns.put(None, takes(world, 1000))
    asked = world.put(Peer(), "asked", 3)
    world.turns.end()
    assert await own == "took"
    assert await asked == "asked"
