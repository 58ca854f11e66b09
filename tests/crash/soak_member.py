"""A member of two groups, one concurrent and one orderly, until it is killed or terminated.

``python -m tests.crash.soak_member NAME_SERVER CONCURRENT_TOPIC ORDERLY_TOPIC NAME FILE`` appends
a line to the file for each message that it consumed, as ``tests/peer/java/SoakMember.java`` does.
"""

import asyncio
import os
import random
import signal
import sys
import time

from rocketlens import ConsumeOrderlyStatus, PushConsumer

FAILS_ONE_IN = 50


async def main(name_server, concurrent_topic, orderly_topic, name, path):
    rng = random.Random(name)
    # One write a line, so that a kill leaves whole lines.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def consumed(kind, messages):
        now = time.monotonic_ns()
        lines = [
            f"{kind} {now} {each.queue_id} {each.queue_offset} {each.body.decode()}\n"
            for each in messages
        ]
        os.write(file, "".join(lines).encode())

    async def concurrently(messages, context):
        if rng.randrange(FAILS_ONE_IN) == 0:
            context.delay_level = 1
            raise ValueError("as it was told to")
        await asyncio.sleep(rng.random() / 1000)
        consumed("concurrent", messages)

    async def in_order(messages, context):
        if rng.randrange(FAILS_ONE_IN) == 0:
            context.suspend_s = 0.01
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        await asyncio.sleep(rng.random() / 1000)
        consumed("orderly", messages)
        return ConsumeOrderlyStatus.SUCCESS

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    concurrent = PushConsumer(name_server, group="g_concurrent", begin="first", batch=4)
    concurrent.subscribe(concurrent_topic)
    concurrent.listen(concurrently)
    orderly = PushConsumer(name_server, group="g_orderly", begin="first")
    orderly.subscribe(orderly_topic)
    orderly.listen_orderly(in_order)
    async with concurrent, orderly:
        os.write(file, b"ready\n")
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
