"""A message whose body is not what its producer's flag says is given as it is stored, with a note.

Its bytes are sound and it is no damage: answers stay complete, exit codes as they are without it.
"""

import asyncio
import json
import zlib

import pytest

import rocketlens
from rocketlens.main import main
from rocketlens.net.pool import ClientPool
from rocketlens.testing import cluster
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import properties_of, send_fields, text_of
from tests.support.json_messages import body_of

KEY = "poisoned"
TOO_LARGE = zlib.compress(bytes(65 << 20))
POISON = {
    "not compressed": (0x1, b"plain text", "not zlib data"),
    "cut": (0x1, zlib.compress(b"whole" * 100)[:-9], "middle of its zlib data"),
    "unknown type": (0x601, b"who knows", "unknown way"),
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
