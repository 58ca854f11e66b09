"""RocketMQ's Go client (rocketmq-client-go) sends to our broker, and consumes from it."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from rocketlens import MQAdmin
from rocketlens.testing import embedded
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parent / "go"
COUNT = 20


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The compiled program; its modules are fetched once, and checked by `go.sum`."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go: install Go 1.19 or newer (apt-get install golang-go)")
    fetched = subprocess.run(
        [go, "mod", "download"], cwd=SOURCE, capture_output=True, text=True, check=False
    )
    if fetched.returncode != 0:
        pytest.skip(f"Go cannot fetch rocketmq-client-go: {fetched.stderr}")
    built = tmp_path_factory.mktemp("go") / "client"
    done = subprocess.run(
        [go, "build", "-o", built, "."], cwd=SOURCE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return built


def test_a_go_client_sends_consumes_and_gets_again_what_it_refused(program):
    async def prepare(name_server):
        async with MQAdmin(name_server) as admin:
            await admin.create_topic("FromGo", 4)

    async def look_up(name_server, sent):
        async with MQAdmin(name_server) as admin:
            for number, _, msg_id, offset_msg_id in sent:
                [found] = (await admin.find(f"go-{number}", "FromGo")).messages
                assert (found.msg_id, found.offset_msg_id) == (msg_id, offset_msg_id)
                assert (found.body, found.tags) == (number.encode(), "go")

    with embedded.cluster() as cluster:
        asyncio.run(prepare(cluster.name_server))
        done = subprocess.run(
            [program, cluster.name_server, "FromGo", str(COUNT)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        printed = [line.split(" ") for line in done.stdout.splitlines()]
        lines = {
            kind: [words for first, *words in printed if first == kind]
            for kind in ("sent", "refused", "consumed")
        }
        numbers = [str(number) for number in range(COUNT)]
        assert [words[:2] for words in lines["sent"]] == [[number, "true"] for number in numbers]
        asyncio.run(look_up(cluster.name_server, lines["sent"]))
    assert {tuple(words) for words in lines["refused"]} == {("0", "0"), ("0", "1")}
    consumed = {(number, "0", f"go-{number}") for number in numbers[1:]} | {("0", "2", "go-0")}
    assert {tuple(words) for words in lines["consumed"]} == consumed
