"""Trace messages are read as Java's encoder wrote them; a bad record costs one record."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.errors import BodyError
from rocketlens.formats.trace_body import TraceRecord, TraceType, decode, encode, keys_of

PUB = "Pub 1700000000000 DefaultRegion p-group T U1 TagA k1 10.0.0.1:10911 5 3 0 OFF true"
SUB_BEFORE = "SubBefore 1700000000001 DefaultRegion g REQ U1 2 k1"
SUB_AFTER = "SubAfter REQ U1 7 true k1 0 1700000000002 g"
END = "EndTransaction 1700000000003 R p T U1 TagA k1 10.0.0.1:10911 2 U1 COMMIT_MESSAGE false"
RECALL = "Recall 1700000000004 R p T U1 true"


def body_of(*lines):
    return "".join(line.replace(" ", "\x01") + "\x02" for line in lines).encode()


def test_every_kind_of_record_is_read():
    damage = []
    pub, before, after, end, recall = decode(
        body_of(PUB, SUB_BEFORE, SUB_AFTER, END, RECALL), damage
    )
    assert damage == []
    assert (pub.trace_type, pub.timestamp_ms, pub.group, pub.topic) == (
        TraceType.PUB,
        1_700_000_000_000,
        "p-group",
        "T",
    )
    assert (pub.cost_ms, pub.message_type, pub.offset_msg_id) == (3, "Normal_Msg", "OFF")
    assert (pub.is_success, pub.client_host, pub.body_length) == (True, None, 5)
    assert (before.request_id, before.retry_times, before.keys) == ("REQ", 2, "k1")
    assert (after.request_id, after.cost_ms, after.context_code) == ("REQ", 7, 0)
    assert (after.timestamp_ms, after.group, after.is_success) == (1_700_000_000_002, "g", True)
    assert (end.message_type, end.transaction_state) == ("Trans_msg_Commit", "COMMIT_MESSAGE")
    assert end.from_transaction_check is False
    assert (recall.trace_type, recall.is_success) == (TraceType.RECALL, True)
    assert {each.msg_id for each in (pub, before, after, end, recall)} == {"U1"}


def test_records_of_older_clients_are_shorter():
    words = PUB.split()
    old = " ".join([*words[:12], "false"])
    host = f"{PUB} 10.0.0.9"
    cloud = "SubAfter REQ U1 7 false k1 4 "
    found = decode(body_of(old, host, cloud, " ".join(words[:12])), damage := [])
    assert damage == []
    assert [each.is_success for each in found] == [False, True, False, True]
    assert (found[0].offset_msg_id, found[1].client_host) == (None, "10.0.0.9")
    assert (found[2].context_code, found[2].timestamp_ms, found[2].group) == (4, None, None)


@pytest.mark.parametrize(
    "bad",
    [
        "Pub x R g T U1 a b c 1 2 0",
        "Pub 1 R",
        "Pub 1 R g T U1 a b c 1 2 9",
        "Pub 1 R g T U1 a b c 99999999999 2 0",
        "SubBefore 1 R g REQ U1 x k",
        "SubAfter REQ",
        "EndTransaction 1 R p T U1 a b c 2",
    ],
)
def test_a_bad_record_costs_one_record_and_is_named(bad):
    found = decode(body_of(bad, RECALL), damage := [])
    assert [each.trace_type for each in found] == [TraceType.RECALL]
    assert len(damage) == 1
    assert damage[0].startswith(f"a {bad.split()[0]} record of")


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_read_or_reported(body):
    damage = []
    decode(body, damage)
    decode(body_of(PUB) + body, damage)


@given(st.integers(0, 255), st.data())
def test_every_prefix_and_every_changed_byte_is_read_or_reported(byte, data):
    body = bytearray(body_of(PUB, SUB_AFTER, END))
    place = data.draw(st.integers(0, len(body) - 1))
    decode(bytes(body[:place]), [])
    body[place] = byte
    decode(bytes(body), [])


def test_only_the_first_bad_records_are_reported_and_all_good_ones_read():
    bad = ["SubAfter REQ"] * (limits.MAX_DAMAGE_REPORTS + 3)
    found = decode(body_of(*bad, PUB), damage := [])
    assert [each.trace_type for each in found] == [TraceType.PUB]
    assert len(damage) == limits.MAX_DAMAGE_REPORTS


def test_a_trace_longer_than_a_message_can_be_is_not_read():
    longest = body_of(PUB).ljust(limits.MAX_BODY_BYTES, b"x")
    assert len(decode(longest, [])) == 1
    with pytest.raises(BodyError, match=f"{limits.MAX_BODY_BYTES} are allowed"):
        decode(longest + b"x", [])


def test_records_that_nobody_knows_are_left_out():
    assert decode(body_of("Pop 1 2 3", "", RECALL), damage := [])[0].trace_type is TraceType.RECALL
    assert damage == []


JAVA = Path(__file__).with_name("java_trace_vectors.txt").read_text(encoding="utf-8").splitlines()
"""What `TraceDataEncoder` of 4.9.7 and 5.5.0 wrote, and by which keys it is found."""
ID = "AC1100010000000000000000000000A1"


def as_java_was_given(kind, keys):
    return TraceRecord(
        TraceType(kind),
        ID,
        timestamp_ms=1_700_000_000_000,
        region_id="DefaultRegion",
        group="group",
        topic="Topic",
        tags="" if keys == "null" else "TagA",
        keys="" if keys == "null" else keys.strip("'"),
        store_host="10.0.0.1:10911",
        body_length=5,
        cost_ms=7,
        message_type="Trans_msg_Commit" if kind == "EndTransaction" else "Normal_Msg",
        offset_msg_id="7F00000100002A9F0000000000000007",
        is_success=True,
        request_id="AC1100010000000000000000000000B2",
        retry_times=2,
        context_code=4,
        transaction_id=ID,
        transaction_state="ROLLBACK_MESSAGE",
        from_transaction_check=True,
    )


@pytest.mark.parametrize("line", JAVA)
def test_records_are_written_as_java_writes_them(line):
    kind, keys, written, found_by, read = line.split("\t")
    record = as_java_was_given(kind, keys)
    ours = encode(record).decode().replace("\x01", "|").replace("\x02", "#")
    if keys == "''":
        # Java's decoder fails at some of these; `null` is what a message without keys has.
        assert ours.replace("null", "") == written
    else:
        assert ours == written
        assert read == f"[{kind}/{ID}]"
    assert sorted(keys_of(record)) == found_by.strip("[]").split(", ")


@pytest.mark.parametrize(
    "record", [TraceRecord(TraceType.RECALL, "x"), TraceRecord(TraceType.PUB, "x")]
)
def test_what_clients_do_not_write_is_refused(record):
    with pytest.raises(BodyError):
        encode(record)


TEXTS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
LONGS, INTS = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
COMMON = {"msg_id": TEXTS, "timestamp_ms": LONGS, "group": TEXTS, "keys": TEXTS}
SENT = {**COMMON, "region_id": TEXTS, "topic": TEXTS, "tags": TEXTS, "store_host": TEXTS}
KINDS = st.sampled_from(["Normal_Msg", "Trans_Msg_Half", "Delay_Msg"])
RECORDS = st.one_of(
    st.builds(
        TraceRecord,
        trace_type=st.just(TraceType.PUB),
        body_length=INTS,
        cost_ms=INTS,
        message_type=KINDS,
        offset_msg_id=TEXTS,
        is_success=st.booleans(),
        **SENT,
    ),
    st.builds(
        TraceRecord,
        trace_type=st.just(TraceType.SUB_BEFORE),
        region_id=TEXTS,
        request_id=TEXTS,
        retry_times=INTS,
        is_success=st.sampled_from([True]),
        **COMMON,
    ),
    st.builds(
        TraceRecord,
        trace_type=st.just(TraceType.SUB_AFTER),
        request_id=TEXTS,
        cost_ms=INTS,
        is_success=st.booleans(),
        context_code=st.integers(0, 4),
        **COMMON,
    ),
    st.builds(
        TraceRecord,
        trace_type=st.just(TraceType.END_TRANSACTION),
        message_type=KINDS,
        transaction_id=TEXTS,
        transaction_state=TEXTS,
        from_transaction_check=st.booleans(),
        is_success=st.sampled_from([True]),
        **SENT,
    ),
)


@given(st.lists(RECORDS, max_size=5))
def test_what_is_written_is_read_as_it_was(records):
    damage = []
    assert list(decode(b"".join(map(encode, records)), damage)) == records
    assert damage == []
