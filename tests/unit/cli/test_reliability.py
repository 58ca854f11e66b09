"""What RocketMQ loses or gets wrong, and RocketLens must not: the table in README.md.

Each test damages a copy of a real store in the way its name says, and asks through the command
line, as a person would.
"""

import hashlib
import json
import random
import shutil
import struct

import pytest

from rocketlens.formats import commitlog_record
from rocketlens.model.text.java import index_hash
from tests.conftest import fingerprint
from tests.support.json_messages import body_of

SLOTS, ENTRIES = 500, 1000


@pytest.fixture(params=["4.9.7", "5.5.0"])
def real(request, golden):
    return golden(request.param)


@pytest.fixture
def copy(real, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(real.store, store)
    return store


def stored(real):
    """What was sent and is to be found: not the transactions that were rolled back."""
    return [one for one in real.sent if one["kind"] != "tx-ROLLBACK_MESSAGE"]


def sample(real, count=25):
    return random.Random(3).sample(stored(real), count)


def answer_of(run, store, *arguments):
    done = run("find", *arguments, "--store", store, "-o", "json")
    assert "Traceback" not in done.err
    return done.code, json.loads(done.out)


def assert_found(run, store, one):
    """Find one by its unique key and by each of its keys, with the right body."""
    for text in (one["msg_id"], *(one["keys"] or "").split()):
        code, answer = answer_of(run, store, text, "--topic", one["topic"])
        assert code == 0
        bodies = {
            m["offset_msg_id"]: hashlib.sha256(body_of(m)).hexdigest() for m in answer["messages"]
        }
        if one["kind"] in ("send", "batch"):
            assert bodies[one["offset_msg_id"]] == one["body_sha256"]
        else:  # its id is that of the copy that waited
            assert one["body_sha256"] in bodies.values()


def test_one_flipped_bit_costs_one_message_and_that_is_said(run, real, copy):
    hit = next(one for one in stored(real)[300:] if one["kind"] == "send" and one["keys"])
    offset = int(hit["offset_msg_id"][-16:], 16)
    segment = copy / "commitlog" / f"{offset // 262144 * 262144:020d}"
    content = bytearray(segment.read_bytes())
    record = commitlog_record.decode(bytes(content), offset % 262144)
    content[offset % 262144 + 88] ^= 1  # the first byte of the body
    assert len(record.body) > 1
    segment.write_bytes(content)
    for text in (hit["msg_id"], hit["offset_msg_id"]):
        code, answer = answer_of(run, copy, text)
        assert (code, answer["complete"]) == (3, False)
        assert hit["offset_msg_id"] not in {m["offset_msg_id"] for m in answer["messages"]}
        assert any(str(offset) in (c["error"] or "") for c in answer["coverage"])
    code, answer = answer_of(run, copy, "--since", "0")
    assert code == 3
    found = {m["offset_msg_id"] for m in answer["messages"]}
    # Transactions were told the id of their half message, or none.
    asked = {one["offset_msg_id"] for one in stored(real) if one["offset_msg_id"]}
    assert asked - found == {hit["offset_msg_id"]}


@pytest.mark.parametrize("damage", ["deleted", "empty", "cut", "header zeroed"])
def test_a_lost_or_cut_index_costs_no_message(run, real, copy, damage):
    for path in (copy / "index").iterdir():
        content = path.read_bytes()
        if damage == "deleted":
            path.unlink()
        else:
            path.write_bytes(
                {
                    "empty": b"",
                    "cut": content[: len(content) // 2],
                    "header zeroed": bytes(40) + content[40:],
                }[damage]
            )
    for one in sample(real):
        assert_found(run, copy, one)


def test_a_cycle_in_an_index_chain_ends_and_answers_stay_right(run, real, copy):
    absent = "no-such-key-{}"
    for number, path in enumerate(sorted((copy / "index").iterdir())):
        content = bytearray(path.read_bytes())
        first = 40 + SLOTS * 4
        count = struct.unpack_from(">i", content, 36)[0] - 1
        for entry in range(1, count + 1):
            # Each entry leads to itself, or to a later one.
            link = entry if number % 2 else count
            struct.pack_into(">i", content, first + entry * 20 + 16, link)
        path.write_bytes(content)
    for number in range(20):
        code, answer = answer_of(run, copy, absent.format(number), "--topic", "PayTopic")
        assert (code, answer["messages"]) == (1, [])
    for one in sample(real, 10):
        assert_found(run, copy, one)


def test_an_index_of_another_store_gives_no_wrong_answer(run, real, golden, copy):
    other = golden("4.9.7" if real.version == "5.5.0" else "5.5.0")
    shutil.rmtree(copy / "index")
    shutil.copytree(other.store / "index", copy / "index")
    for one in sample(real):
        assert_found(run, copy, one)


def test_keys_with_the_same_hash_are_told_apart(run, real, copy):
    assert index_hash("T#Aa") == index_hash("T#BB")
    for key in ("Aa", "BB", "AaBB"):
        _, answer = answer_of(run, copy, key)
        assert answer["messages"]
        assert all(key in message["keys"] for message in answer["messages"])


def test_a_lost_consume_queue_costs_no_message(run, real, copy):
    shutil.rmtree(copy / "consumequeue")
    for one in sample(real, 10):
        if one["kind"] != "send":
            continue
        position = f"{one['topic']}/{one['queue_id']}/{one['queue_offset']}"
        code, answer = answer_of(run, copy, position)
        assert (code, [m["offset_msg_id"] for m in answer["messages"]]) == (
            0,
            [one["offset_msg_id"]],
        )


def test_a_record_forged_inside_a_body_is_not_believed(run, write_store, make_record):
    place = 88 + 5  # behind the head of the first record, and five bytes of its body
    forged = commitlog_record.encode(make_record(place, body=b"forged", topic="Secret"))
    store = write_store({"body": b"12345" + forged + b"rest"})
    forged_id = make_record(place).offset_msg_id
    for command in ("find", "show"):
        done = run(command, forged_id, "--store", store)
        assert (done.code, done.out) == (1, "")
    code, answer = answer_of(run, store, "--since", "0")
    assert (code, len(answer["messages"])) == (0, 1)


def test_an_offset_that_is_no_record_start_is_not_found(run, real, copy):
    host = real.sent[0]["offset_msg_id"][:-16]
    generator = random.Random(8)
    starts = {one["offset_msg_id"] for one in real.sent}
    for offset in (*(generator.randrange(800_000) for _ in range(40)), 1 << 40, 2**63 - 1):
        text = f"{host}{offset:016X}"
        if text in starts:
            continue
        code, answer = answer_of(run, copy, text)
        for message in answer["messages"]:
            assert message["offset_msg_id"] == text  # a copy that the broker made
        assert code == (0 if answer["messages"] else 1)


@pytest.mark.parametrize("tail", [b"", b"\xff" * 100, None])
def test_a_torn_last_record_costs_only_itself(run, write_store, tail):
    store = write_store(*({"properties": {"KEYS": f"k{n}"}} for n in range(3)))
    segment = store / "commitlog" / "00000000000000000000"
    content = segment.read_bytes().rstrip(b"\0")
    torn = content[:-20] + (bytes(4096) if tail is None else tail)
    segment.write_bytes(torn)
    assert answer_of(run, store, "k1")[0] == 0
    code, answer = answer_of(run, store, "k2")
    assert answer["messages"] == []
    assert code in {1, 3}


def test_nothing_that_is_asked_changes_a_store(run, real, copy):
    shutil.rmtree(copy / "index")
    before = fingerprint(copy)
    for one in sample(real, 3):
        run("find", one["msg_id"], "--store", copy)
        run("show", one["offset_msg_id"], "--store", copy)
    run("doctor", "--store", copy)
    assert fingerprint(copy) == before
