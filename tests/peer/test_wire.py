"""The real RocketMQ judges `rocketlens.wire`: its decoder reads what we write.

`python -m tests.peer.test_wire` writes the vectors of the unit tests anew, all but the lines
`live`, which running brokers gave.
"""

import tempfile
from pathlib import Path

import pytest

from rocketlens.wire import acl, frame
from rocketlens.wire.codes import LanguageCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.declare import read_body, write_body
from tests.peer.rocketmq_peer import RocketMQPeer
from tests.support.binary_header import encode_command
from tests.support.wire_samples import (
    HEADERS,
    VECTORS,
    VERSIONS,
    bodies,
    java_names_of,
    sample,
    vectors_of,
)

PROGRAM = Path(__file__).parent / "java" / "WireJudge.java"
CODECS = {"JSON": frame.JSON_CODEC, "ROCKETMQ": frame.BINARY_CODEC}
ACCESS_KEY = "access"
SECRET_KEY = "12345678"
REMARK = 're"mark\n€'

versions = pytest.mark.parametrize("version", VERSIONS)


def ask(peer, version, questions):
    """What the judge says to each question: its words."""
    with tempfile.TemporaryDirectory() as scratch:
        asked = Path(scratch, "questions.txt")
        asked.write_text("\n".join("\t".join(words) for words in questions), encoding="ascii")
        lines = peer.java(version, PROGRAM, str(asked)).splitlines()
    answers = [line[2:].split("\t") for line in lines if line.startswith("> ")]
    assert len(answers) == len(questions)
    return answers


def hexed(text):
    return text.encode().hex()


def in_clear(answer):
    """What to show of an answer: an error is in hexadecimal."""
    return bytes.fromhex(answer[1]).decode() if answer[0] == "error" else answer


def headers_of(version):
    """Each header that a version has, with the fields of a sample."""
    for java_name, header in HEADERS.items():
        ext_fields = header.encode(sample(header.header_class, VERSIONS[version]))
        if ext_fields and any(words[0] == java_name for words in vectors_of(version, "fields")):
            yield java_name, ext_fields


@versions
def test_rocketmq_reads_every_header_that_we_write(peer, version):
    expected = []
    questions = []
    for java_name, ext_fields in headers_of(version):
        command = RemotingCommand(310, -7, 1, REMARK, ext_fields, b"\x00\xff", LanguageCode.GO, 407)
        for number in CODECS.values():
            expected.append(ext_fields)
            questions.append(["decode", java_name, encode_command(command, number).hex()])
    for answer, ext_fields in zip(ask(peer, version, questions), expected, strict=True):
        shown = in_clear(answer)
        assert answer[:7] == ["310", "-7", "1", "407", "GO", hexed(REMARK), "00ff"], shown
        read = {
            name: bytes.fromhex(value).decode()
            for name, value in zip(answer[7::2], answer[8::2], strict=True)
        }
        # Java's primitives are there whether they were sent or not.
        assert {name: value for name, value in read.items() if name in ext_fields} == {
            name: value for name, value in ext_fields.items() if name != "_UNIQUE_KEY_QUERY"
        }, shown


@versions
def test_rocketmq_reads_every_body_that_we_write(peer, version):
    # 4.9.7 has no classes for the newest of them.
    known = {words[0] for words in vectors_of(version, "body")}
    written = [body for body in bodies() if known.intersection(java_names_of(type(body)))]
    questions = [["body", java_names_of(type(body))[0], write_body(body).hex()] for body in written]
    for body, answer in zip(written, ask(peer, version, questions), strict=True):
        assert answer[0] != "error", in_clear(answer)
        again = read_body(type(body), bytes.fromhex(answer[0]))
        if VERSIONS[version] == max(VERSIONS.values()):
            assert again == body


def test_the_real_4_9_broker_takes_our_signature_and_no_other(peer):
    ext_fields = {"topic": "té", "queueId": "3", "_UNIQUE_KEY_QUERY": "true"}
    unsigned = {"_UNIQUE_KEY_QUERY": "true"}
    plain = {name: value for name, value in ext_fields.items() if name not in unsigned}
    signed = acl.signed_fields(plain, b"body", ACCESS_KEY, SECRET_KEY) | unsigned
    questions = [
        [
            "verify",
            SECRET_KEY,
            encode_command(RemotingCommand(12, ext_fields=each, body=body)).hex(),
        ]
        for each, body in (
            (signed, b"body"),
            (signed | {"queueId": "4"}, b"body"),
            (signed, b"bodies"),
        )
    ]
    assert ask(peer, "4.9.7", questions) == [["true"], ["false"], ["false"]]


def encode_questions(version):
    """Have RocketMQ write a sample of each of its header classes, with both codecs."""
    for java_name, header in HEADERS.items():
        ext_fields = header.encode(sample(header.header_class, VERSIONS[version]))
        words = [word for name, value in ext_fields.items() for word in (name, hexed(value))]
        for name in CODECS:
            yield ["encode", name, java_name, "310", "-7", "0", hexed(REMARK), "00ff", *words]


def write_vectors(peer, version):
    """Ask RocketMQ for everything that the unit tests compare with, and keep its answers."""
    lines = [["codes", name] for name in ("RequestCode", "ResponseCode")]
    lines.append(["versions"])
    lines += [["fields", java_name] for java_name in HEADERS]
    lines += [["body", java_names_of(type(body))[0], write_body(body).hex()] for body in bodies()]
    frames = list(encode_questions(version))
    answers = ask(peer, version, [*lines, *frames])
    kept = [
        [*words[:2], *answer]
        for words, answer in zip(lines, answers[: len(lines)], strict=True)
        if answer[0] != "error"
    ]
    kept += [
        ["frame", *words[1:3], *answer]
        for words, answer in zip(frames, answers[len(lines) :], strict=True)
        if answer[0] != "error"
    ]
    signed = [words[-1] for words in kept if words[0] == "frame" and words[1] == "JSON"][:4]
    questions = [["sign", ACCESS_KEY, SECRET_KEY, sent] for sent in signed]
    kept += [
        ["sign", ACCESS_KEY, SECRET_KEY, sent, *answer]
        for sent, answer in zip(signed, ask(peer, version, questions), strict=True)
    ]
    target = VECTORS / f"{version}.txt"
    live = [["live", *words] for words in vectors_of(version, "live")] if target.exists() else []
    text = "".join("\t".join(words) + "\n" for words in [*kept, *live])
    target.write_text(f"# What RocketMQ {version} answered\n{text}", encoding="ascii")


if __name__ == "__main__":
    for each in VERSIONS:
        write_vectors(RocketMQPeer(), each)
