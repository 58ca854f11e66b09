"""A store that rolls and is cleaned all the time, while many ask it: brokers' clients and readers.

Whatever is asked is found as it was sent, or its place is before where the log begins.
"""

import asyncio
import random
import threading

import pytest

import rocketlens
from rocketlens.errors import AnswerIncomplete, MessageNotFound, RocketLensError
from tests.crash.broker_load import TOPIC, WAYS, Load, clients_of, undisturbed
from tests.support.broker_process import CLEANING, BrokerProcess
from tests.support.patience import complaints

SEED = 20_241_124
LASTS_S = [3, pytest.param(60, marks=pytest.mark.slow)]
ROLLING = {
    "mappedFileSizeCommitLog": 65_536,
    "maxIndexNum": 2_000,
    "maxHashSlotNum": 500,
    "cleanResourceInterval": 1_000,
} | CLEANING
"""With some thousand messages a second a file of the log lasts 0.1 s, one of the index 0.5 s."""

CLIENT_TASKS = 8
READERS = 8
MOST_DESCRIPTORS = 100
"""What the number of open files may grow by, with ten files a second that come and go."""
AS_LATE_AS = 1_000
"""Asked for is one of so many newest messages: of those some are just being deleted."""


class Outcomes:
    """What came of questions."""

    def __init__(self):
        self.found = self.missed = 0

    def judge(self, broker, sent, found, said):
        """Count an answer; what was said in its place when nothing was found."""
        if not found:
            assert sent.physical_offset < broker.min_offset(), (said, sent, SEED)
            self.missed += 1
            return
        assert len(found) == 1, (said, sent, found)
        assert sent.is_shown_by(found[0]), (said, sent, found)
        self.found += 1


def read_by_offset_id(store, sent):
    return [store.view_message(sent.offset_msg_id)]


def read_by_unique_key(store, sent):
    return [store.view_message(TOPIC, sent.unique_key)]


def read_by_key(store, sent):
    return whole(store.query_message(TOPIC, sent.key, None))


def read_by_queue_offset(store, sent):
    return [store.query_by_queue_offset(TOPIC, sent.queue.queue_id, sent.queue_offset)]


def read_by_any(store, sent):
    return whole(store.find(sent.key, TOPIC))


READING_WAYS = (
    read_by_offset_id,
    read_by_unique_key,
    read_by_key,
    read_by_queue_offset,
    read_by_any,
)


def whole(answer):
    """Give the messages of an answer, or have it say why there is none."""
    if answer.messages:
        return answer.messages
    raise AnswerIncomplete(f"complete={answer.complete}: {answer.coverage}", answer)


def outcome_of(way, store, sent):
    """Ask a reader; gives what was found, if anything, and what was said instead."""
    try:
        return way(store, sent), way.__name__
    except (MessageNotFound, AnswerIncomplete) as error:
        return (), f"{way.__name__}: {error!r}"


async def ask_for_ever(broker, load, admin, outcomes, seed):
    """Ask over the network."""
    randomness = random.Random(seed)
    while True:
        # Whoever sends goes on first, and in the beginning there is nothing to ask for.
        await asyncio.sleep(0)
        if not load.acknowledged:
            continue
        sent = randomness.choice(load.acknowledged[-AS_LATE_AS:])
        for way in WAYS:
            found, said = (), way.__name__
            try:
                found = await way(admin, sent)
            except (MessageNotFound, AnswerIncomplete) as error:
                said = f"{said}: {error!r}"
            outcomes.judge(broker, sent, found, said)


def read_for_ever(broker, load, ended, outcomes, seed):
    """Ask a reader of the directory, now and then another one; if one fails, all end."""
    randomness = random.Random(seed)
    try:
        while not ended.is_set():
            with rocketlens.open_store(broker.store) as store:
                for _ in range(randomness.randrange(1, 50)):
                    sent = randomness.choice(load.acknowledged[-AS_LATE_AS:])
                    for way in READING_WAYS:
                        outcomes.judge(broker, sent, *outcome_of(way, store, sent))
                    if ended.is_set():
                        return
    finally:
        ended.set()


def in_threads(work, count):
    """Run something in threads; gives what to call to wait for them, which raises what they did."""
    errors = []

    def guarded(number):
        try:
            work(number)
        except (AssertionError, OSError, ValueError, RocketLensError) as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()

    def join():
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    return join


def rolls(broker):
    """How many files the log and the index have had, by their last names."""
    last = max(int(path.name) for path in (broker.store / "commitlog").iterdir())
    return last // ROLLING["mappedFileSizeCommitLog"]


def has_rolled(broker, outcomes):
    """Whether enough was found, and files were deleted: how long that takes is the machine's."""
    return outcomes.found > 100 and broker.min_offset() > 0


@pytest.mark.parametrize("lasts_s", LASTS_S)
def test_clients_find_all_that_the_log_still_has_while_it_rolls_and_is_cleaned(
    tmp_path, lasts_s, record_property
):
    load, outcomes = Load(SEED), Outcomes()

    async def main(broker):
        async with clients_of(broker.name_server) as clients:
            sending = load.tasks(clients, senders=6, askers=0)
            asking = [
                asyncio.create_task(ask_for_ever(broker, load, clients[1], outcomes, SEED + n))
                for n in range(CLIENT_TASKS)
            ]
            await undisturbed([*sending, *asking], lasts_s, lambda: has_rolled(broker, outcomes))
            for task in (*sending, *asking):
                task.cancel()
            await asyncio.gather(*sending, *asking, return_exceptions=True)

    with BrokerProcess(tmp_path, **ROLLING) as broker:
        broker.start()
        at_first = broker.descriptor_count()
        asyncio.run(main(broker))
        assert broker.descriptor_count() < at_first + MOST_DESCRIPTORS
        record_property("sent", len(load.acknowledged))
        record_property("found", outcomes.found)
        record_property("missed", outcomes.missed)
        record_property("log_files", rolls(broker))
        broker.stop()
        assert not complaints(broker.said())


@pytest.mark.parametrize("lasts_s", LASTS_S)
def test_readers_of_the_directory_find_all_that_the_log_still_has_while_it_is_written(
    tmp_path, lasts_s, record_property
):
    load, outcomes, ended = Load(SEED), Outcomes(), threading.Event()

    async def main(broker):
        async with clients_of(broker.name_server) as clients:
            await load.send_one(clients[0])
            sending = load.tasks(clients, senders=4, askers=0)
            join = in_threads(
                lambda n: read_for_ever(broker, load, ended, outcomes, SEED + n), READERS
            )
            await undisturbed(
                sending, lasts_s, lambda: ended.is_set() or has_rolled(broker, outcomes)
            )
            ended.set()
            await asyncio.to_thread(join)
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    with BrokerProcess(tmp_path, **ROLLING) as broker:
        broker.start()
        asyncio.run(main(broker))
        record_property("sent", len(load.acknowledged))
        record_property("found", outcomes.found)
        record_property("missed", outcomes.missed)
        record_property("log_files", rolls(broker))
        broker.stop()
