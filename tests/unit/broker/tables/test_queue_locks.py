"""Which client has which queue to itself, and until when."""

from rocketlens.broker.tables.queue_locks import QueueLocks
from tests.support.clocks import Seconds


def test_a_lock_ends_sixty_seconds_after_it_was_renewed():
    seconds = Seconds(5.0)
    locks = QueueLocks(seconds)
    assert locks.lock("g", "T", 0, "c1")
    seconds.now_s += 50
    assert locks.lock("g", "T", 0, "c1")
    seconds.now_s += 60
    assert not locks.lock("g", "T", 0, "c2")
    seconds.now_s += 0.1
    assert locks.lock("g", "T", 0, "c2")
    assert not locks.lock("g", "T", 0, "c1")


def test_there_is_room_for_so_many_and_those_whose_time_is_over_make_room(monkeypatch):
    monkeypatch.setattr("rocketlens.broker.tables.queue_locks.MAX_QUEUE_LOCKS", 3)
    seconds = Seconds(5.0)
    locks = QueueLocks(seconds)
    assert all(locks.lock("g", "T", number, "c") for number in range(3))
    assert not locks.lock("g", "T", 3, "c")
    assert (locks.count, locks.refused) == (3, 1)
    seconds.now_s += 50
    assert locks.lock("g", "T", 0, "c")
    seconds.now_s += 20
    assert locks.lock("g", "T", 3, "c")
    assert locks.lock("g", "T", 4, "c")
    assert not locks.lock("g", "T", 5, "c")
    assert not locks.lock("g", "T", 0, "other")
