"""Shares of a group's queues, and files of offsets, as RocketMQ's own classes have them.

`python -m tests.peer.test_consumer_judge` writes the vectors of the unit tests anew.
"""

from pathlib import Path

import pytest

from rocketlens.client.connect.route import MessageQueue
from rocketlens.wire.bodies.clients import LocalOffsets
from rocketlens.wire.declare import read_body, write_body
from tests.peer.rocketmq_peer import RocketMQPeer
from tests.unit.client.consume import consumer_vectors

PROGRAM = Path(__file__).parent / "java" / "ConsumerJudge.java"
OFFSETS = {
    MessageQueue("T", "broker-a", 0): 7,
    MessageQueue('T"ä\\', "b", 3): 2**40,
    MessageQueue("%RETRY%g", "broker-a", 1): 0,
}


def asked(peer, version, lines, directory):
    file = directory / "questions.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return list(filter(None, peer.java(version, PROGRAM, str(file)).splitlines()))


def all_questions():
    return [
        *consumer_vectors.questions(),
        f"offsets\t{write_body(LocalOffsets(offset_table=OFFSETS)).hex()}",
    ]


@pytest.mark.parametrize("version", consumer_vectors.VERSIONS)
def test_the_vectors_are_what_rocketmq_answers(peer, version, tmp_path):
    answers = asked(peer, version, all_questions(), tmp_path)
    kept = (consumer_vectors.VECTORS / f"{version}.txt").read_text(encoding="ascii").splitlines()
    allocations = [line for line in answers if line.startswith("allocate")]
    assert allocations == [line for line in kept if line.startswith("allocate")]
    [offsets] = [line.split("\t") for line in answers if line.startswith("offsets")]
    assert read_body(LocalOffsets, bytes.fromhex(offsets[2])).offset_table == OFFSETS


def write_vectors(directory):
    """Ask both versions, and keep their answers."""
    for version in consumer_vectors.VERSIONS:
        answers = asked(RocketMQPeer(), version, all_questions(), directory)
        consumer_vectors.VECTORS.mkdir(exist_ok=True)
        text = "\n".join([f"# What RocketMQ {version} answered", *answers]) + "\n"
        (consumer_vectors.VECTORS / f"{version}.txt").write_text(text, encoding="ascii")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        write_vectors(Path(scratch))
