"""A process that stores messages until it is killed, and says which of them are durable.

Run as ``python -m tests.crash.store_writer PATH FIRST SEED``. A line on its output is the number,
physical offset, queue id and queue offset of a message that SYNC_FLUSH acknowledged.
"""

import os
import random
import sys
import threading

from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore, StoreOptions
from tests.support.written_stores import BORN_HOST, STORE_HOST, properties_of

CONFIG = StoreConfig(
    mappedFileSizeCommitLog=16_384,
    mappedFileSizeConsumeQueue=1000,
    maxHashSlotNum=50,
    maxIndexNum=200,
    flushDiskType="SYNC_FLUSH",
    flushIntervalConsumeQueue=20,
    diskSpaceWarningLevelRatio=100,
)
OPTIONS = StoreOptions(STORE_HOST)


def acknowledge(sent, failure):
    """Print one message, in one write that cannot be half done."""
    if failure is None:
        line = " ".join(map(str, sent)) + "\n"
        os.write(1, line.encode())


def send_some(store, number, randomness):
    """Append one message or a batch, and have it acknowledged; gives the next number."""
    queue_id = randomness.randrange(3)
    count = randomness.choice((1, 1, 1, 5))
    bodies = [randomness.randbytes(randomness.randrange(400)) for _ in range(count)]
    if count == 1:
        appended = [
            store.append(
                "Orders", queue_id, bodies[0], properties_of(number), BORN_HOST, born_timestamp_ms=1
            )
        ]
    else:
        members = [(0, body, properties_of(number + n)) for n, body in enumerate(bodies)]
        appended = store.append_batch("Orders", queue_id, members, BORN_HOST, born_timestamp_ms=1)
    done = threading.Event()
    for place, one in enumerate(appended):
        sent = (number + place, one.physical_offset, queue_id, one.queue_offset)

        def waiter(failure, sent=sent, is_last=place == count - 1):
            acknowledge(sent, failure)
            if is_last:
                done.set()

        store.when_durable(one.physical_offset + one.store_size, waiter)
    # Not always waited for, so that rounds of syncing have several to serve.
    if randomness.random() < 0.3:
        done.wait()
    return number + count


def main():
    """Store messages for ever."""
    path, first, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    randomness = random.Random(seed)
    store = MessageStore(path_of(path), CONFIG, OPTIONS)
    os.write(1, b"ready\n")
    number = first
    while True:
        number = send_some(store, number, randomness)


def path_of(text):
    """Give a path, late: the process is to be ready soon."""
    from pathlib import Path

    return Path(text)


if __name__ == "__main__":
    main()
