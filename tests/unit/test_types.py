"""Type checkers take programs that are right, and find what is wrong, without running anything.

basedpyright has pyright and its Node.js in packages; pyright's own package fetches both later.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PROGRAM = """
import asyncio
import rocketlens

with rocketlens.open_store("store") as store:
    for message in store.find("order-1", "Orders", begin="2h", max_num=5):
        body: bytes = message.body
    one: rocketlens.MessageExt = store.query_by_queue_offset("Orders", 0, 7)
    store.find("order-1", since="2h")  # "since"
    store.find("order-1", kind="id")  # "kind"
    one.topik  # "topik"

with rocketlens.SyncProducer("127.0.0.1:9876", group="shop") as producer:
    producer.start()
    result: rocketlens.SendResult = producer.send(rocketlens.Message("Orders", "{}", keys="o"))
    number: int = result.msg_id  # "str"
    rocketlens.Message("Orders", "{}", key="o")  # "key"
    rocketlens.SyncProducer("127.0.0.1:9876", gruop="shop")  # "gruop"

with rocketlens.SyncMQAdmin() as admin:
    same: rocketlens.MessageExt = admin.query_by_queue_offset("Orders", 0, 7)
    names: list[str] = [topic.name for topic in admin.topics().topics]
    admin.query_by_queue_offset("Orders", "0", 7)  # "int"
    admin.tail("Orders", folow=True)  # "folow"


async def consume() -> None:
    async with rocketlens.MQAdmin() as admin:
        answer: rocketlens.Answer = await admin.find("order-1")
        print(answer.complete)
        admin.find("order-1").complete  # "complete"
    rocketlens.PushConsumer(group="billing", model="x")  # "model"


asyncio.run(consume())
rocketlens.Consumer  # "Consumer"
"""


def mypy_errors(program):
    """The errors of mypy, strict by pyproject.toml: pairs of line and text."""
    done = run("mypy", "--no-error-summary", program)
    # Of a program that it knows, mypy repeats the errors with the directory of then.
    return re.findall(r"/program\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)


def pyright_errors(program):
    """The errors of what pyright calls strict, without the rules that basedpyright adds."""
    config = program.with_name("pyrightconfig.json")
    config.write_text(
        json.dumps(
            {
                "include": [str(program)],
                "extraPaths": [str(REPOSITORY / "src")],
                "typeCheckingMode": "strict",
            }
        )
    )
    done = run("basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", config)
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] == 1
    return [
        (each["range"]["start"]["line"] + 1, each["message"])
        for each in told["generalDiagnostics"]
        if each["severity"] == "error"
    ]


def run(module, *arguments):
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("errors_of", [mypy_errors, pyright_errors])
def test_a_type_checker_finds_the_wrong_lines_of_a_program_and_no_others(tmp_path, errors_of):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = defaultdict(str)
    for line, text in errors_of(program):
        found[int(line)] += text
    lines = enumerate(PROGRAM.splitlines(), 1)
    wrong = {number: text.partition("  # ")[2] for number, text in lines if "  # " in text}
    assert found.keys() == wrong.keys(), found
    assert {n: text for n, text in wrong.items() if text not in found[n]} == {}, found
