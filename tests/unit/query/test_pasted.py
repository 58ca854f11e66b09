"""Texts as people paste them find the message that they are about, and the answer says how."""

from urllib.parse import urlencode

import pytest

import rocketlens
from rocketlens.errors import BadInput
from rocketlens.query.pasted import MAX_TEXTS, texts_in
from tests.support.console_client import answers, store_at
from tests.unit.conftest import NOON_MS

KEY, OTHER = "7F000001000118B4AAC2000000000001", "7F000001000118B4AAC2000000000002"
QUEUE = "MessageQueue [topic=pay, brokerName=broker-a, queueId=1]"
RESULT = (
    "SendResult [sendStatus=SEND_OK, msgId={key}, offsetMsgId={offset}, messageQueue="
    f"{QUEUE}, queueOffset=0]"
)
WIDE = str.maketrans("0123456789", "\uff10\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19")
FORMS = {
    "as it is": "{key}",
    "spaces": "  {key} ",
    "line end": "{key}\n",
    "no-break space": "\u00a0{key}",
    "byte order mark": "\ufeff{key}",
    "zero-width space": "{key}\u200b",
    "double quotes": '"{key}"',
    "single quotes": "'{key}'",
    "comma behind": "{key},",
    "brackets": "[{key}]",
    "property": "msgId={key}",
    "named": "msgId: {key}",
    "json": '{{"msgId": "{key}"}}',
    "send result": RESULT,
    "queue line": f"{QUEUE}, queueOffset=0",
    "with broker": "broker-a/pay/1/0",
    "position": "pay/1/0",
    "quoted position": "'pay/1/0'",
    "key with line end": "order-1\n",
    "named key": "keys=order-1",
    "quoted key": '"order-1",',
    "offset id in a line": "stored as {offset} by broker-a",
    "wide digits": "{wide}",
}
LISTS = ("{key},{other}", "{key}, {other}", "{key}\n{other}\n", "msgId={key},{other}]")


@pytest.fixture
def store(write_store):
    def message(key, number):
        return {
            "topic": "pay",
            "queue_id": 1,
            "queue_offset": number,
            "properties": {"UNIQ_KEY": key, "KEYS": f"order-{number + 1}"},
            "store_timestamp_ms": NOON_MS + number,
        }

    return write_store(message(KEY, 0), message(OTHER, 1))


def filled(form, store):
    with rocketlens.open_store(store) as opened:
        offset = opened.find(KEY).messages[0].offset_msg_id
    return form.format(key=KEY, other=OTHER, offset=offset, wide=KEY.translate(WIDE))


def test_the_command_and_the_console_take_every_form(store, run):
    texts = [filled(form, store) for form in FORMS.values()]
    for text in texts:
        done = run("find", "--store", store, "--fields", "position", "--no-header", "--", text)
        assert (done.code, done.out) == (0, "pay/1/0\n"), text
        assert ("searched for what is in it: " in done.err) is (text not in {KEY, "pay/1/0"}), text
    for command in ("story", "show"):
        done = run(command, "--store", store, "--", texts[1])
        assert "searched for what is in it: " in done.err
    paths = [f"/api/search?{urlencode({'q': text})}" for text in texts]
    for text, got in zip(texts, answers(paths, store_at(store, "s")), strict=True):
        found = got.json()
        assert [each["unique_key"] for each in found["messages"]] == [KEY], text
        assert found["complete"]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_form_of_a_text_finds_its_message(store, form):
    text = filled(form, store)
    with rocketlens.open_store(store) as opened:
        answer = opened.find(text)
    assert [each.unique_key for each in answer] == [KEY]
    assert answer.complete
    notes = [each.note for each in answer.coverage if each.source == "text"]
    assert len(notes) == (0 if text in {KEY, "pay/1/0"} else 1)


@pytest.mark.parametrize("form", LISTS)
def test_a_list_of_ids_finds_all(store, form):
    with rocketlens.open_store(store) as opened:
        answer = opened.find(filled(form, store))
        newest = opened.find(filled(form, store), max_num=1)
    assert [each.unique_key for each in answer] == [KEY, OTHER]
    assert ([each.unique_key for each in newest], newest.truncated) == ([OTHER], True)


def test_a_key_of_exactly_that_text_wins(write_store):
    text = f"msgId={KEY},"
    store = write_store(
        {"properties": {"UNIQ_KEY": KEY}}, {"properties": {"KEYS": text, "UNIQ_KEY": OTHER}}
    )
    with rocketlens.open_store(store) as opened:
        answer = opened.find(text)
    assert [each.unique_key for each in answer] == [OTHER]


def test_a_long_list_is_searched_in_part_and_said_so(store):
    ids = [f"{number:032X}" for number in range(MAX_TEXTS + 1)]
    with rocketlens.open_store(store) as opened:
        answer = opened.find(",".join(ids))
    assert not answer.complete
    assert f"the first {MAX_TEXTS} of {MAX_TEXTS + 1} texts" in answer.coverage[0].error


@pytest.mark.parametrize("text", ["x" * (1 << 20), "\n".join(f"{n:032X}" for n in range(10_000))])
def test_a_text_that_is_too_long_is_refused_with_what_to_do(store, text):
    why = f"a key or id at most 32,767: give part of it; of a list of ids the first {MAX_TEXTS} "
    with rocketlens.open_store(store) as opened, pytest.raises(BadInput, match=why):
        opened.find(text)
    got, *_ = answers([f"/api/search?{urlencode({'q': text[:40_000]})}"], store_at(store, "s"))
    assert (got.status_code, "the first 100" in got.text) == (400, True)


@pytest.mark.parametrize("piece", ["topic=", "topic=a ", "topic=a,queueId=1 ", "a/", "id=", "<"])
def test_a_position_behind_a_long_text_is_found(piece):
    """Without bounds in the pattern it takes minutes."""
    text = piece * (30_000 // len(piece)) + " " * 400 + f"{QUEUE}, queueOffset=0"
    assert texts_in(text) == ("pay/1/0",)


@pytest.mark.parametrize("text", ["order-1", "a b", KEY, "T/0/1", "键", "%RETRY%g"])
def test_a_plain_text_contains_no_other(text):
    assert texts_in(text) == ()
