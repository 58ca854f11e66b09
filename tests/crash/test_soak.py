"""A broker for minutes under load, stopped and killed in turn: it does not take more and more.

``ROCKETLENS_SOAK_SECONDS`` says for how long; two minutes without it. With five or more, give
pytest ``-o faulthandler_timeout=0``, too.
"""

import asyncio
import os
import random
import statistics
from typing import NamedTuple

import pytest

from tests.crash.broker_load import Load, clients_of, undisturbed
from tests.crash.test_rolling_store import ROLLING, Outcomes, ask_for_ever
from tests.support.broker_process import BrokerProcess

SEED = 20_241_127
FILES = ROLLING | {
    "mappedFileSizeCommitLog": 262_144,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxIndexNum": 10_000,
    "maxHashSlotNum": 2_500,
}
"""The cleaner takes ten files of the log a second at most: so the store stays as large as it is."""
LASTS_S = int(os.environ.get("ROCKETLENS_SOAK_SECONDS", "120"))
LIVES = 4
SAMPLE_S = 1.0
WARM_UP = 0.4
"""Of each life, the part in which it comes to its size."""
MOST_MIB_PER_MINUTE = 1.0
MOST_DESCRIPTORS = 40
"""What the number of open files may go up and down by, with files that come and go."""


class Sample(NamedTuple):
    """What a broker took at a moment."""

    at_s: float
    anon_kib: int
    descriptors: int


async def live(broker, load, outcomes, seconds):
    """Send and ask for some time; gives what the broker took meanwhile."""
    samples = []
    async with clients_of(broker.name_server) as clients:
        tasks = load.tasks(clients, senders=4, askers=0)
        tasks += [
            asyncio.create_task(ask_for_ever(broker, load, clients[1], outcomes, SEED + n))
            for n in range(2)
        ]
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        while loop.time() - begun_s < seconds:
            await undisturbed(tasks, SAMPLE_S)
            at_s = loop.time() - begun_s
            samples.append(Sample(at_s, broker.kib("RssAnon"), broker.descriptor_count()))
            # Only the newest can be asked for: the test must not grow itself.
            del load.acknowledged[:-5_000]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return samples


def grown_per_minute(samples):
    """The slope of the memory in MiB a minute, from the middle of the first to the last third.

    Medians, for what is taken for a moment only.
    """
    third = len(samples) // 3
    early, late = samples[:third], samples[-third:]
    grown_kib = statistics.median(s.anon_kib for s in late) - statistics.median(
        s.anon_kib for s in early
    )
    minutes = (statistics.mean(s.at_s for s in late) - statistics.mean(s.at_s for s in early)) / 60
    return grown_kib / 1024 / minutes


@pytest.mark.slow
def test_for_minutes_under_load_a_broker_takes_no_more_memory_and_no_more_files(
    tmp_path, record_property
):
    load, outcomes = Load(SEED), Outcomes()
    randomness = random.Random(SEED)
    slopes, spreads, ends = [], [], []
    with BrokerProcess(tmp_path, **FILES) as broker:
        for number in range(LIVES):
            broker.start()
            # The last life is half of it all, so that a slow growth shows.
            seconds = LASTS_S / 2 if number == LIVES - 1 else LASTS_S / 2 / (LIVES - 1)
            samples = asyncio.run(live(broker, load, outcomes, seconds))
            samples = samples[int(len(samples) * WARM_UP) :]
            slopes.append(round(grown_per_minute(samples), 2))
            counts = [sample.descriptors for sample in samples]
            spreads.append((min(counts), max(counts)))
            ends.append(samples[-1].anon_kib // 1024)
            (broker.kill if randomness.random() < 0.5 else broker.stop)()
        record_property("seconds", LASTS_S)
        record_property("sent", load.next_number)
        record_property("found", outcomes.found)
        record_property("mib_per_minute", slopes)
        record_property("descriptors", spreads)
        record_property("anon_mib_at_the_ends", ends)
        assert "ERROR" not in broker.said()
    assert slopes[-1] < MOST_MIB_PER_MINUTE, (slopes, ends)
    assert all(high - low <= MOST_DESCRIPTORS for low, high in spreads), spreads
    assert max(high for _, high in spreads) < 2 * min(low for low, _ in spreads) + MOST_DESCRIPTORS
