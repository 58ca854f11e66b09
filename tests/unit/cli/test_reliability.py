"""What RocketMQ loses or gets wrong and RocketLens must not: the table in README.md.

Each test damages a copy of a real store in the way its name says, and asks through the command
line, as a person would.
"""

import asyncio
import hashlib
import json
import random
import shutil
import struct
import zlib

import pytest

import rocketlens
from rocketlens.formats import commitlog_record
from rocketlens.main import main
from rocketlens.net.pool import ClientPool
from rocketlens.testing import cluster
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import properties_of, send_fields, text_of
from tests.support.effort import sized
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


def sample(real):
    return random.Random(3).sample(stored(real), sized(8, 25))


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
    for one in sample(real):
        assert_found(run, copy, one)


def test_an_index_of_another_store_gives_no_wrong_answer(run, real, golden, copy):
    other = golden("4.9.7" if real.version == "5.5.0" else "5.5.0")
    shutil.rmtree(copy / "index")
    shutil.copytree(other.store / "index", copy / "index")
    for one in sample(real):
        assert_found(run, copy, one)


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


KEY = "poisoned"
TOO_LARGE = zlib.compress(bytes(65 << 20))
POISON = {
    "not compressed": (0x1, b"plain text", "not zlib data"),
    "cut": (0x1, zlib.compress(b"whole" * 100)[:-9], "middle of its zlib data"),
    "unknown type": (0x601, b"who knows", "unknown compression"),
    "not lz4": (0x101, b"plain text", "no"),
    "too large": (0x1, TOO_LARGE, "grows beyond 67108864 bytes"),
}
KINDS = list(POISON)


def unique_key_of(kind):
    return f"{KINDS.index(kind):032X}"


@pytest.fixture(scope="module")
def rocketmq():
    """A cluster that has each of them, in queue 0 of topic T."""

    async def send(address):
        pool = ClientPool(lambda _: True)
        for kind, (sys_flag, body, _) in POISON.items():
            named = properties_of(UNIQ_KEY=unique_key_of(kind), KEYS=f"{KEY} {kind[:3]}")
            fields = send_fields("T", named) | {"f": sys_flag}
            texts = {name: text_of(value) for name, value in fields.items() if value is not None}
            answer = await pool.call(address, int(RequestCode.SEND_MESSAGE_V2), texts, body)
            assert answer.code == 0, answer.remark
        await pool.close()

    with cluster() as running:
        asyncio.run(send(running.broker))
        yield running


@pytest.fixture
def store(write_store):
    """A store that has each of them, in queue 0 of topic T."""
    return write_store(
        *(
            {
                "body": body,
                "sys_flag": sys_flag,
                "properties": {"KEYS": f"{KEY} {kind[:3]}", "UNIQ_KEY": unique_key_of(kind)},
            }
            for kind, (sys_flag, body, _) in POISON.items()
        )
    )


@pytest.fixture(params=["store", "cluster"])
def source(request):
    """The options that name one of the two."""
    if request.param == "store":
        return "--store", str(request.getfixturevalue("store"))
    return "--namesrv", request.getfixturevalue("rocketmq").name_server


def check_fields(messages):
    assert len(messages) == len(POISON)
    for message, (sys_flag, body, error) in zip(messages, POISON.values(), strict=True):
        assert body_of(message) == body
        assert error in message["body_error"]
        assert message["sys_flag"] == sys_flag


@pytest.mark.parametrize("question", [(KEY,), ("--topic", "T", "--since", "2000-01-01")])
def test_they_are_found_with_their_stored_bytes_and_the_answer_is_complete(run, source, question):
    done = run("find", *question, *source, "-o", "json")
    answer = json.loads(done.out)
    assert (done.code, answer["complete"]) == (0, True)
    check_fields(answer["messages"])
    lines = run("find", *question, *source, "-o", "jsonl")
    assert lines.code == 0
    check_fields([json.loads(line) for line in lines.out.splitlines()])


def test_a_table_has_them_and_a_note_for_each(run, source):
    done = run("find", KEY, *source)
    assert done.code == 0
    assert len(done.out.splitlines()) == 1 + len(POISON)
    assert "COMPLETE" in done.err
    assert "INCOMPLETE" not in done.err
    for number, (_, _, error) in enumerate(POISON.values()):
        place = f"T/0/{number}: the body is shown as stored: "
        (line,) = [line for line in done.err.splitlines() if line.startswith(place)]
        assert error in line


@pytest.mark.parametrize("kind", KINDS)
def test_show_gives_the_stored_bytes_and_says_why(source, kind, capsysbinary):
    _, body, error = POISON[kind]
    for text in (f"T/0/{KINDS.index(kind)}", unique_key_of(kind)):
        assert main(["show", text, *source, "--body", "raw"]) == 0
        out, err = capsysbinary.readouterr()
        assert out == body
        assert error in err.decode()


def test_show_names_the_reason_beside_the_body(run, source):
    done = run("show", "T/0/0", *source)
    (line,) = [line for line in done.out.splitlines() if line.startswith("Body ")]
    assert "10 bytes as stored (body is not zlib data" in line


def test_the_python_api_gives_them_whichever_way_they_are_asked_for(store, rocketmq):
    with rocketlens.open_store(store) as opened, rocketmq.admin() as admin:
        scan = opened.scan("T")
        scanned = list(scan)
        assert scan.complete
        assert scan.failures == []
        for kind, (_, body, error) in POISON.items():
            number, unique_key = KINDS.index(kind), unique_key_of(kind)
            there = opened.query_by_queue_offset("T", 0, number)
            asked = admin.view_message("T", unique_key)
            for message in (
                scanned[number],
                there,
                opened.view_message(unique_key),
                opened.view_message(there.offset_msg_id),
                asked,
                admin.view_message(asked.offset_msg_id),
            ):
                assert message.body == body
                assert error in message.body_error
        for answer in (opened.query_message("T", KEY), admin.query_message("T", KEY)):
            assert answer.complete
            assert [each.body for each in answer] == [body for _, body, _ in POISON.values()]


def test_a_body_that_can_be_decompressed_has_no_error(write_store):
    store = write_store({"body": zlib.compress(b"sound"), "sys_flag": 1})
    with rocketlens.open_store(store) as opened:
        (message,) = opened.scan()
    assert (message.body, message.body_error) == (b"sound", None)


@pytest.fixture
def mqadmin(run, rocketmq, monkeypatch, tmp_path):
    """Give ``mqadmin(command, *words) -> Done``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return lambda command, *words: run("mqadmin", command, "-n", rocketmq.name_server, *words)


def test_mqadmin_writes_the_stored_bytes_and_says_why(mqadmin, tmp_path):
    for kind, (_, body, error) in POISON.items():
        unique_key = unique_key_of(kind)
        done = mqadmin("queryMsgByUniqueKey", "-t", "T", "-i", unique_key)
        assert done.code == 0
        assert error in done.err
        assert (tmp_path / "rocketlens/msgbodys" / unique_key).read_bytes() == body


def test_mqadmin_lists_and_prints_them(mqadmin):
    done = mqadmin("queryMsgByKey", "-t", "T", "-k", KEY)
    assert done.code == 0
    assert all(unique_key_of(kind) in done.out for kind in KINDS)
    done = mqadmin("printMsg", "-t", "T")
    assert done.code == 0
    assert "BODY: plain text" in done.out
    assert all(error in done.err for _, _, error in POISON.values())


def test_mqadmin_does_not_send_one_again_as_something_else(mqadmin):
    words = ("-t", "T", "-i", unique_key_of("not compressed"), "-s", "true")
    done = mqadmin("queryMsgById", *words)
    assert done.code == 2
    assert "cannot be sent again as it was: body is not zlib data" in done.err
