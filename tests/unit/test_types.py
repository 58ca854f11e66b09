"""Type checkers take programs that are right, and find what is wrong, without running anything.

mypy alone: pyright is a program for Node.js, which the package from the index fetches when it runs.
"""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PROGRAM = """
import asyncio
import rocketlens

with rocketlens.open_store("store") as store:
    for message in store.find("order-1", "Orders", begin="2h", max_num=5):
        body: bytes = message.body
    one: rocketlens.MessageExt = store.query_by_queue_offset("Orders", 0, 7)
    store.find("order-1", since="2h")  # "since" for "find"
    store.find("order-1", kind="id")  # incompatible type
    one.topik  # has no attribute "topik"

with rocketlens.SyncProducer("127.0.0.1:9876", group="shop") as producer:
    producer.start()
    result: rocketlens.SendResult = producer.send(rocketlens.Message("Orders", "{}", keys="o"))
    number: int = result.msg_id  # expression has type "str"
    rocketlens.Message("Orders", "{}", key="o")  # "key" for "Message"
    rocketlens.SyncProducer("127.0.0.1:9876", gruop="shop")  # "gruop" for "SyncProducer"

with rocketlens.SyncMQAdmin() as admin:
    same: rocketlens.MessageExt = admin.query_by_queue_offset("Orders", 0, 7)
    names: list[str] = [topic.name for topic in admin.topics().topics]
    admin.query_by_queue_offset("Orders", "0", 7)  # expected "int"
    admin.tail("Orders", folow=True)  # argument "folow"


async def consume() -> None:
    async with rocketlens.MQAdmin() as admin:
        answer: rocketlens.Answer = await admin.find("order-1")
        admin.find("order-1").complete  # has no attribute "complete"
    rocketlens.PushConsumer(group="billing", model="x")  # "model" for "PushConsumer"


asyncio.run(consume())
rocketlens.Consumer  # has no attribute "Consumer"
"""


def test_mypy_finds_the_wrong_lines_of_a_program_and_no_others(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", program],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    # Of a program that it knows, mypy repeats the errors with the directory of then.
    errors = re.findall(r"/program\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    found = {int(line): text for line, text in errors}
    lines = enumerate(PROGRAM.splitlines(), 1)
    wrong = {number: text.partition("  # ")[2] for number, text in lines if "  # " in text}
    assert found.keys() == wrong.keys(), done.stdout
    assert {n: text for n, text in wrong.items() if text not in found[n]} == {}, found
