"""Small bodies that grow to gigabytes cost no memory: not the broker's, a client's, a reader's."""

import asyncio
import json
import random
import subprocess
import sys
import zlib
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from rocketlens import limits
from rocketlens.formats.body_compression import COMPRESSED, LZ4, ZLIB, ZSTD
from rocketlens.net.pool import ClientPool
from rocketlens.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.broker_world import properties_of, send_fields, text_of
from tests.support.made_stores import Sent, make_store
from tests.support.patience import complaints

REPOSITORY = Path(__file__).parents[2]
MOST_MIB = 64
TOPIC = "Bombs"
STEP = bytes(1 << 20)
GROWN_STEPS = (limits.MAX_BODY_BYTES >> 20) + 64


def zlib_bomb():
    """Give a step as it stands in a stream that begins anew with each, so many times."""
    stream = zlib.compressobj(9)
    first, again = (stream.compress(STEP) + stream.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + again * GROWN_STEPS


def lz4_bomb():
    stream = lz4.frame.LZ4FrameCompressor()
    parts = [stream.begin(), *(stream.compress(STEP) for _ in range(GROWN_STEPS)), stream.flush()]
    return b"".join(parts)


def zstd_bomb():
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join([*(stream.compress(STEP) for _ in range(GROWN_STEPS)), stream.flush()])


@pytest.fixture(scope="module")
def bombs():
    """By the system flag that goes with each."""
    packed = {COMPRESSED | ZLIB: zlib_bomb(), COMPRESSED | LZ4: lz4_bomb()}
    packed |= {COMPRESSED: packed[COMPRESSED | ZLIB], COMPRESSED | ZSTD: zstd_bomb()}
    assert all(len(body) < 4 << 20 for body in packed.values())
    return packed


ASKER = """
import json, resource, sys
import rocketlens
from rocketlens.client.blocking.sync_admin import SyncMQAdmin

def most_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

how, where, *numbers = sys.argv[1:]
answers = []
with rocketlens.open_store(where) if how == "reader" else SyncMQAdmin(where, timeout_s=60) as asked:
    asked.query_message("Bombs", "sound")
    before = most_mib()
    for number in numbers:
        answer = asked.query_message("Bombs", f"bomb-{number}")
        (message,) = answer
        answers.append([len(message.body), answer.complete, message.body_error])
        message = asked.view_message("Bombs", f"B0000000000000000000000000000000{number}")
        answers.append([len(message.body), True, message.body_error])
    sound = [message.body.decode() for message in asked.query_message("Bombs", "sound")]
    grown = most_mib() - before
print(json.dumps([answers, sound, grown]))
"""


def assert_no_memory(how, where, count):
    """Ask for each bomb in a process of its own, and look what that cost."""
    command = [sys.executable, "-c", ASKER, how, str(where), *map(str, range(count))]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers, sound, grown_mib = json.loads(done.stdout)
    assert sound == ["sound"] * bool(count)
    assert len(answers) == 2 * count
    for body_bytes, complete, said in answers:
        assert body_bytes < 4 << 20
        assert complete
        assert "grows beyond" in said
    assert grown_mib < MOST_MIB


def test_a_reader_says_that_a_body_grows_too_large_and_takes_no_memory_for_it(tmp_path, bombs):
    messages = [
        Sent(TOPIC, f"bomb-{n}", f"B{n:032}", body=body, sys_flag=sys_flag)
        for n, (sys_flag, body) in enumerate(bombs.items())
    ]
    sound = Sent(TOPIC, "sound", body=b"sound")
    made = make_store(tmp_path / "store", [*messages, sound], segment_bytes=16 << 20)
    assert_no_memory("reader", made.path, len(bombs))


async def send(broker, messages):
    """Send ``(key, system flag, body)`` as they are."""
    pool = ClientPool(lambda _: True)
    for n, (key, sys_flag, body) in enumerate(messages):
        properties = properties_of(UNIQ_KEY=f"{key[0].upper()}{n:032}", KEYS=key)
        fields = send_fields(TOPIC, properties) | {"f": sys_flag}
        texts = {name: text_of(value) for name, value in fields.items() if value is not None}
        address = f"127.0.0.1:{broker.port}"
        answer = await pool.call(address, int(RequestCode.SEND_MESSAGE_V2), texts, body)
        assert answer.code == 0, answer.remark
    await pool.close()


def test_a_broker_keeps_bombs_as_they_are_and_clients_take_no_memory_for_them(tmp_path, bombs):
    with BrokerProcess(tmp_path, mappedFileSizeCommitLog=16 << 20) as broker:
        broker.start()
        # As long as they are, and no more than they seem; what is loaded once is loaded now.
        bodies = [random.Random(n).randbytes(len(body)) for n, body in enumerate(bombs.values())]
        asyncio.run(send(broker, [("sound-as-it-is", 0, body) for body in bodies]))
        assert_no_memory("client", broker.name_server, 0)
        before_kib = broker.kib("RssAnon")
        messages = [(f"bomb-{n}", *bomb) for n, bomb in enumerate(bombs.items())]
        asyncio.run(send(broker, [*messages, ("sound", 0, b"sound")]))
        assert_no_memory("client", broker.name_server, len(bombs))
        assert broker.kib("RssAnon") - before_kib < MOST_MIB * 1024
        broker.stop()
        assert not complaints(broker.said())
