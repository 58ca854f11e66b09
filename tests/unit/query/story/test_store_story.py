"""The files of a store say where groups go on, and not which clients they had."""

import json

import pytest

import rocketlens
from rocketlens.query.story import story_search
from tests.support.made_stores import Sent, make_store
from tests.support.story_world import KEY
from tests.unit.conftest import NOON_MS

OFFSETS = {
    "T@late": {"0": 0},
    "T@past": {"0": 1},
    "T@reset": {"0": 9_000},
    "T@elsewhere": {"1": 5},
    "U@other": {"0": 1},
    "T@TOOLS_CONSUMER": {"0": 1},
}
FILES = {
    "consumerOffset.json": {"offsetTable": OFFSETS, "pullOffsetTable": {"T@reset": {"0": 0}}},
    "subscriptionGroup.json": {
        "subscriptionGroupTable": {"past": {"groupName": "past", "retryMaxTimes": 3}}
    },
}


@pytest.fixture
def store(write_store):
    path = write_store({"properties": {"UNIQ_KEY": KEY}})
    (path / "config").mkdir()
    for name, content in FILES.items():
        (path / "config" / name).write_text(json.dumps(content))
    return path


def story_of(path, text=KEY, **options):
    with rocketlens.open_store(path) as store:
        return store.story(text, **options)


def test_each_group_with_an_offset_in_the_topic_has_a_state(store):
    story = story_of(store)
    assert {each.group: each.state.value for each in story.groups} == {
        "elsewhere": "not_yet",
        "late": "not_yet",
        "past": "passed",
        "reset": "passed_by_reset",
    }
    assert {each.source for each in story.groups} == {"config/consumerOffset.json"}
    assert [each.max_retries for each in story.groups] == [None, None, 3, None]
    assert "which clients were online" in story.unlearnt[-1].what
    assert story.complete


def test_an_offset_of_a_broadcast_is_that_of_its_group(store):
    offsets = {"T@waves@broadcast": {"0": 1}, "T@past@broadcast": {"0": 1}, "T@past": {"0": 1}}
    path = store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": offsets}))
    assert {each.group: each.state.value for each in story_of(store).groups} == {
        "past": "passed",
        "waves": "broadcasting",
    }
    with rocketlens.open_store(store) as opened:
        groups = opened.groups().groups
    assert [(each.name, each.message_model) for each in groups] == [
        ("past", None),
        ("waves", "BROADCASTING"),
    ]
    assert [{queue.topic for queue in each.queues} for each in groups] == [{"T"}, set()]


def test_a_group_that_is_asked_for_is_told_of_alone(store):
    [group] = story_of(store, group="other").groups
    assert (group.state.value, group.rests_on) == (
        "never_subscribed",
        "it has no offset in topic T",
    )


@pytest.mark.parametrize("content", [None, "{"])
def test_offsets_that_cannot_be_read_are_not_known_and_not_absent(store, content):
    path = store / "config" / "consumerOffset.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    story = story_of(store, group="past")
    assert [each.state.value for each in story.groups] == ["unknown"]
    assert not story.complete


def test_a_file_without_pull_offsets_is_one_of_rocketmq_4(store):
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@reset":{"0":9000}}}')
    story = story_of(store)
    assert [each.state.value for each in story.groups] == ["passed"]
    assert story.complete


@pytest.mark.parametrize(
    ("retry_topic", "given"),
    [
        ("%RETRY%a_b_T", {"ORIGIN_GROUP": "a_b"}),
        ("%RETRY%a_b_T", {}),
        ("%RETRY%a_b+T", {"ORIGIN_GROUP": "a_b"}),
    ],
)
@pytest.mark.parametrize("text", [KEY, "T/0/0"])
def test_retries_of_pop_are_those_of_their_group(write_store, retry_topic, given, text):
    pop = {"UNIQ_KEY": KEY, "1ST_POP_TIME": "1", **given}
    path = write_store(
        {"properties": {"UNIQ_KEY": KEY}},
        *(
            {"topic": retry_topic, "properties": pop, "queue_offset": n, "reconsume_times": n + 1}
            for n in range(2)
        ),
    )
    (path / "config").mkdir()
    offsets = {"T@a_b": {"0": 1}, f"{retry_topic}@a_b": {"0": 2}}
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    with rocketlens.open_store(path) as store:
        story = store.story(text)
        groups = store.groups().groups
    [group] = story.groups
    assert (group.group, group.state, group.retries) == ("a_b", "consumed", 2)
    assert "the group's offset there is 2" in group.rests_on
    assert [each.text for each in story.events if each.kind == "retry"] == [
        f"retry {n} of group a_b stored as {retry_topic}/0/{n - 1}" for n in (1, 2)
    ]
    assert [(each.name, each.lag, each.to_retry) for each in groups] == [("a_b", 0, 0)]


TIMER, HALF, MARKS = (
    "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
)
TIMED = {"UNIQ_KEY": KEY, "REAL_TOPIC": "T", "TIMER_OUT_MS": "4102444800000"}
PREPARED = {"UNIQ_KEY": KEY, "REAL_TOPIC": "T", "TRAN_MSG": "true", "TAGS": "t"}


def half(offset, **given):
    properties = {**PREPARED, **given}
    return {"topic": HALF, "queue_offset": offset, "queue_id": 0, "properties": properties}


def mark(body, topic=MARKS, **properties):
    given = {"TAGS": "d", **properties}
    return {"topic": topic, "queue_offset": 0, "queue_id": 0, "body": body, "properties": given}


@pytest.mark.parametrize("text", [KEY, f"{TIMER}/0/0"])
def test_a_recalled_message_does_not_wait_and_came_once(write_store, text):
    recall = {**TIMED, "TIMER_DEL_UNIQKEY": KEY, "PGROUP": "p", "TAGS": "_RECALL_TAG_"}
    path = write_store(
        {"topic": TIMER, "properties": TIMED},
        {"topic": TIMER, "properties": recall, "store_timestamp_ms": NOON_MS + 9},
    )
    story = story_of(path, text)
    delayed, recalled = (each for each in story.events if each.topic)
    assert ("recalled at" in delayed.text, "due" in delayed.text) == (True, False)
    assert recalled.kind == "recalled"
    assert recalled.text.startswith("recalled from 10.0.0.9:")
    assert "by producer group p" in recalled.text
    assert story.repeats == ()


def test_a_timer_that_a_broker_stored_anew_came_once(write_store):
    rolled = {**TIMED, "TIMER_ROLL_TIMES": "1"}
    path = write_store(*({"topic": TIMER, "properties": each} for each in (TIMED, rolled)))
    assert story_of(path).repeats == ()


@pytest.mark.parametrize(
    ("marks", "ending"),
    [
        ([], "; its producer has not answered yet"),
        ([mark(b"0,1,")], "; its producer has not answered yet"),
        ([mark(b"0,1,2,")], f"transaction rolled back: {MARKS}/0/0 ends it, and no record commits"),
        ([mark(b"2")], "transaction rolled back: "),
        # None of these is there.
        ([mark(b"99,-1,x,,12345678901234567890,")], "; its producer has not answered yet"),
    ],
)
def test_how_a_transaction_ended_is_read_from_its_marks(write_store, marks, ending):
    halves = [half(0), half(1, TRANSACTION_CHECK_TIMES="1"), half(2, TRANSACTION_CHECK_TIMES="2")]
    story = story_of(write_store(*halves, *marks))
    assert ending in story.events[-1].text
    # The broker stored it anew at each check: that is no producer's retry.
    assert story.repeats == ()
    assert "checks so far: 2" in story.events[3].text
    assert story.complete


@pytest.mark.parametrize(("offset", "is_ended"), [("0", True), ("4", False)])
def test_the_mark_of_a_transaction_in_rocksdb_names_its_half_message(write_store, offset, is_ended):
    first = {**half(0), "topic": "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"}
    ended = mark(b"", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", TRANS_OFFSET=offset)
    story = story_of(write_store(first, ended))
    assert (story.events[-1].kind == "transaction_ended") is is_ended


def test_a_committed_transaction_is_not_rolled_back(write_store):
    committed = {"properties": {"UNIQ_KEY": KEY}, "sys_flag": 8}
    story = story_of(write_store(half(0), committed, mark(b"0")))
    assert [each.kind for each in story.events] == ["sent", "half", "stored"]


def test_marks_that_cannot_be_read_leave_the_end_unknown(write_store, monkeypatch):
    monkeypatch.setattr(story_search, "MAX_MARKS", 1)
    story = story_of(write_store(half(0), mark(b"7"), {**mark(b"8"), "queue_offset": 1}))
    assert "has not answered" not in story.events[-1].text
    assert "how its transaction ended" in [each.what for each in story.unlearnt]
    assert not story.complete


def test_a_resend_says_who_did_it_and_why(write_store):
    again = {
        "RESENT_BY_ROCKETLENS": "j/1",
        "RESENT_BY_ROCKETLENS_WHY": "ann: INC-1",
        "RETRY_TOPIC": "T",
    }
    given = {"UNIQ_KEY": KEY}
    path = write_store(
        {"properties": given},
        {"topic": "%RETRY%g", "properties": {**given, **again}},
        {"queue_offset": 1, "properties": {**given, **again}},
    )
    story = story_of(path)
    assert [each.text for each in story.events][2:] == [
        "sent again by RocketLens, job j/1, ann: INC-1: stored as T/0/1",
        "sent again to group g by RocketLens, job j/1, ann: INC-1: stored as %RETRY%g/0/1",
    ]
    assert story.repeats == (
        "T/0/1 has the same unique key as T/0/0: a resend by RocketLens, job j/1, ann: INC-1",
    )


REVIVE = "rmq_sys_REVIVE_LOG_c"
CHECKPOINT = (
    b'{"bm":0,"bn":"b","c":"books","d":[0,2],"it":60000,"n":2,"pt":%d,"q":1,"ro":0,"so":5,'
    b'"t":"pay"}'
)
ACK = b'"c":"books","pt":7,"q":1,"so":5,"t":"pay"}'


@pytest.mark.parametrize(
    ("tag", "body", "expected"),
    [
        ("ck", CHECKPOINT % NOON_MS, "POP handed pay/1/5, pay/1/7 out to group books at "),
        ("ck", CHECKPOINT[:40], f"{REVIVE}/0/0, a record of POP, cannot be read"),
        ("ck", b'{"so":"x"}', f"{REVIVE}/0/0, a record of POP"),
        ("ack", b'{"ao":5,' + ACK, "group books acknowledged pay/1/5"),
        ("bAck", b'{"aol":[5,6],' + ACK, "group books acknowledged "),
        ("bAck", b"[]", f"{REVIVE}/0/0, a record of POP"),
        *(
            (tag, body, f"{REVIVE}/0/0, a record of POP")
            for tag, body in (
                ("ck", CHECKPOINT.replace(b'"q":1', b'"q":-1') % NOON_MS),
                ("ck", CHECKPOINT.replace(b'"so":5', b'"so":-9') % NOON_MS),
                ("ck", CHECKPOINT.replace(b"[0,2]", b"[]").replace(b'"n":2', b'"n":-2') % NOON_MS),
                ("ck", CHECKPOINT.replace(b"pay", b"p/y") % NOON_MS),
                ("bAck", b'{"aol":[],' + ACK),
            )
        ),
    ],
)
def test_what_pop_handed_out_is_told_by_its_record(write_store, tag, body, expected):
    record = {"topic": REVIVE, "queue_offset": 0, "body": body, "properties": {"TAGS": tag}}
    story = story_of(write_store(record), f"{REVIVE}/0/0")
    assert story.events[-1].text.startswith(expected)
    assert ("visible again at" in story.events[-1].text) is (body == CHECKPOINT % NOON_MS)


def test_a_group_that_only_records_of_pop_name_is_known(tmp_path):
    bodies = (CHECKPOINT % NOON_MS, CHECKPOINT[:40], b'{"ao":5,' + ACK.replace(b"books", b"games"))
    tags = ("ck", "ck", "ack")
    sent = [Sent(REVIVE, body=body, tags=tag) for body, tag in zip(bodies, tags, strict=True)]
    with rocketlens.open_store(make_store(tmp_path / "store", sent).path) as store:
        assert [each.name for each in store.groups().groups] == ["books", "games"]


def test_the_story_of_a_message_has_what_pop_recorded_of_it(write_store):
    """Checkpoints wait as timers; those of other queues and messages are not of it."""
    later = {"store_timestamp_ms": NOON_MS + 10}
    timer = {"REAL_TOPIC": REVIVE, "TAGS": "ck", "TIMER_OUT_MS": str(NOON_MS + 60_000)}
    other = (CHECKPOINT % NOON_MS).replace(b'"q":1', b'"q":2')
    records = [
        ("ck", CHECKPOINT % NOON_MS),
        ("ck", other),
        ("ack", b'{"ao":7,' + ACK),
        ("ack", b'{"ao":5,' + ACK),
    ]
    path = write_store(
        {"topic": "pay", "queue_id": 1, "queue_offset": 5, "properties": {"UNIQ_KEY": "U1"}},
        *(
            {"topic": REVIVE, "queue_offset": n, "body": body, "properties": {"TAGS": tag}, **later}
            for n, (tag, body) in enumerate(records)
        ),
        {
            "topic": "rmq_sys_wheel_timer",
            "body": CHECKPOINT % (NOON_MS + 5),
            "properties": timer,
            **later,
        },
    )
    for text in ("pay/1/5", "U1"):
        story = story_of(path, text)
        assert not [each for each in story.unlearnt if each.is_failure]
        told = [each.text for each in story.events if each.kind == "handed_out"]
        assert [each.partition(" ")[0] for each in told] == ["POP", "group", "POP"]
        assert all("books" in each for each in told)
        assert story.message.position == "pay/1/5"
