"""Frames, the signatures of their requests, and handles of messages to recall."""

import base64
import hmac
import re
import struct
import tracemalloc

import pytest

from rocketlens import limits
from rocketlens.errors import BadInput, FrameError
from rocketlens.wire import acl, frame
from rocketlens.wire.connection import decode_command
from rocketlens.wire.frame import FrameSplitter
from rocketlens.wire.recall_handle import RecallHandle
from tests.support.wire_samples import all_vectors

FRAMES = [(0, b"{}", b""), (1, b"\x00\x01binary", b"body"), (0, b"", b"x" * 300)]
STREAM = b"".join(frame.encode(header, body, codec) for codec, header, body in FRAMES)


def fed(chunks, **bounds):
    splitter = FrameSplitter(**bounds)
    frames = [one for chunk in chunks for one in splitter.feed(chunk)]
    return frames, None if splitter.failure is None else str(splitter.failure), splitter


def test_the_layout_table_is_what_the_structs_say():
    rows = re.findall(r"^(\d+) +i(\d+) ", frame.__doc__, re.MULTILINE)
    assert [(int(offset), int(bits)) for offset, bits in rows] == [(0, 32), (4, 8), (5, 24)]
    assert frame.PREFIX.size == 8
    assert frame.PREFIX.format == ">ii"
    assert frame.encode(b"hd", b"b", 1) == struct.pack(">ibBH", 7, 1, 0, 2) + b"hdb"


def test_frames_come_out_as_they_went_in():
    assert fed([STREAM])[:2] == (FRAMES, None)


def test_every_cut_into_two_gives_the_same_frames():
    for cut in range(len(STREAM) + 1):
        assert fed([STREAM[:cut], STREAM[cut:]])[:2] == (FRAMES, None)


def test_single_bytes_give_the_same_frames():
    frames, failure, splitter = fed([STREAM[at : at + 1] for at in range(len(STREAM))])
    assert (frames, failure) == (FRAMES, None)
    assert splitter.held_bytes == 0


@pytest.mark.parametrize("at_once", [1, 2])
def test_frames_taken_some_at_once_are_the_same_wherever_the_bytes_are_cut(at_once):
    for cut in range(len(STREAM) + 1):
        splitter = FrameSplitter()
        frames = []
        for chunk in (STREAM[:cut], STREAM[cut:]):
            splitter.feed(chunk, 0)
            while splitter.has_more:
                taken = splitter.feed(b"", at_once)
                assert len(taken) <= at_once
                frames += taken
        assert (frames, splitter.failure, splitter.held_bytes) == (FRAMES, None, 0)


def test_a_lie_behind_frames_that_wait_is_found_when_its_turn_comes():
    splitter = FrameSplitter()
    assert splitter.feed(STREAM + b"\xff" * 8, len(FRAMES)) == FRAMES
    assert splitter.failure is None
    assert splitter.has_more
    assert splitter.feed(b"", 1) == []
    assert splitter.failure is not None
    assert not splitter.has_more


def test_every_prefix_gives_the_frames_that_are_whole_and_holds_the_rest():
    ends = [0]
    for codec, header, body in FRAMES:
        ends.append(ends[-1] + len(frame.encode(header, body, codec)))
    for cut in range(len(STREAM)):
        frames, failure, splitter = fed([STREAM[:cut]])
        whole = sum(1 for end in ends[1:] if end <= cut)
        assert (frames, failure) == (FRAMES[:whole], None)
        assert splitter.held_bytes == cut - ends[whole]


LIES = [
    struct.pack(">i", 0),
    struct.pack(">i", 3),
    struct.pack(">i", -1),
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", limits.MAX_FRAME_BYTES - 3),
    b"\x16\x03\x01\x02",
    struct.pack(">ii", 4, 1),
    struct.pack(">ii", 100, 97),
    struct.pack(">ii", limits.MAX_FRAME_BYTES - 4, limits.MAX_HEADER_BYTES + 1),
]


@pytest.mark.parametrize("lie", LIES, ids=bytes.hex)
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_length_that_lies_is_refused_before_anything_is_kept_for_it(lie, is_whole):
    good = frame.encode(b"{}", b"body")
    chunks = [good + lie] if is_whole else [bytes([byte]) for byte in good + lie]
    tracemalloc.start()
    frames, failure, splitter = fed(chunks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert frames == [(0, b"{}", b"body")]
    assert failure is not None
    assert isinstance(splitter.failure, FrameError)
    assert splitter.failure.closes
    assert peak < len(good + lie) + 64 * 1024
    assert splitter.feed(good) == []
    assert splitter.held_bytes == 0


def test_the_largest_frame_of_rocketmq_is_read_and_one_byte_more_is_not():
    # Measured on 4.9.7 and 5.5.0: they close the connection at a length of 16,777,213.
    largest = struct.pack(">ii", 16_777_212, 2)
    assert fed([largest])[1] is None
    assert fed([struct.pack(">ii", 16_777_213, 2)])[1] is not None
    with pytest.raises(BadInput):
        frame.encode(b"{}", bytes(16_777_213 - 6))
    assert len(frame.encode(b"{}", bytes(16_777_212 - 6))) == 16_777_216


def test_a_promised_body_costs_no_memory_until_it_comes():
    tracemalloc.start()
    splitter = FrameSplitter()
    splitter.feed(struct.pack(">ii", 16_777_212, 2) + b"{}")
    received = 10
    peaks = []
    for _ in range(64):
        splitter.feed(bytes(4096))
        received += 4096
        peaks.append(tracemalloc.get_traced_memory()[0] - received * 9 // 8)
    tracemalloc.stop()
    assert max(peaks) < 64 * 1024
    assert splitter.held_bytes == received


def test_a_server_may_read_smaller_headers_only():
    long_header = frame.encode(b" " * 101)
    assert fed([long_header], max_header_bytes=101)[1] is None
    assert fed([long_header], max_header_bytes=100)[1] == (
        "a header says it has 101 bytes, 100 allowed"
    )


FIELDS = {"topic": "t", "queueId": "3"}


@pytest.mark.parametrize(("version", "words"), all_vectors("sign"))
def test_a_request_is_signed_as_the_real_client_signs_it(version, words):
    del version
    access_key, secret_key, sent, signature = words
    command = decode_command(FrameSplitter().feed(bytes.fromhex(sent))[0])
    signed = acl.signed_fields(command.ext_fields, command.body, access_key, secret_key)
    assert signed["Signature"] == signature
    assert signed["AccessKey"] == access_key
    assert acl.verify(signed, command.body, secret_key)


def test_a_changed_value_body_or_secret_is_noticed():
    signed = acl.signed_fields(FIELDS, b"body", "ak", "sk")
    assert acl.verify(signed, b"body", "sk")
    assert not acl.verify(signed | {"queueId": "4"}, b"body", "sk")
    assert not acl.verify(signed | {"more": "4"}, b"body", "sk")
    assert not acl.verify(signed, b"bodies", "sk")
    assert not acl.verify(signed, b"body", "other")
    assert not acl.verify(signed | {"AccessKey": "other"}, b"body", "sk")


def test_a_request_without_a_signature_or_with_an_odd_one_is_not_signed():
    for signature in ({}, {"Signature": ""}, {"Signature": "é\ud800"}):
        assert not acl.verify(FIELDS | {"AccessKey": "ak"} | signature, b"", "sk")


def test_the_flag_that_clients_add_after_signing_may_be_unsigned():
    signed = acl.signed_fields(FIELDS, b"", "ak", "sk") | {"_UNIQUE_KEY_QUERY": "true"}
    assert acl.verify(signed, b"", "sk")
    both = acl.signed_fields(FIELDS | {"_UNIQUE_KEY_QUERY": "true"}, b"", "ak", "sk")
    assert acl.verify(both, b"", "sk")
    assert not acl.verify(signed | {"queueId": "4"}, b"", "sk")


def test_a_security_token_is_signed_with_the_rest():
    signed = acl.signed_fields(FIELDS, b"", "ak", "sk", "token")
    assert signed["SecurityToken"] == "token"
    assert acl.verify(signed, b"", "sk")
    assert not acl.verify(signed | {"SecurityToken": "other"}, b"", "sk")


def test_names_sort_as_java_sorts_them():
    # U+FF61 comes after U+1F600 in UTF-16, and before it by code point.
    fields = {"\uff61": "1", "\U0001f600": "2"}
    assert acl.sign(fields, b"", "sk") == acl.sign({"a": "2", "b": "1"}, b"", "sk")


@pytest.mark.parametrize("secret_key", ["", "s", "k" * 63, "k" * 64, "k" * 65, "é" * 100])
def test_a_signature_is_hmac_sha1_whatever_the_length_of_the_secret(secret_key):
    for body in (b"", b"body", bytes(1000)):
        digest = hmac.digest(secret_key.encode(), b"3t" + body, "sha1")
        assert acl.sign(FIELDS, body, secret_key) == base64.b64encode(digest).decode()


def test_a_handle_names_topic_broker_time_and_key_as_rocketmqs_does():
    properties = {"REAL_TOPIC": "Orders", "TIMER_OUT_MS": "1795357009000", "UNIQ_KEY": "AAAA0009"}
    handle = RecallHandle.of(properties, "broker-a")
    assert handle is not None
    text = "djEgT3JkZXJzIGJyb2tlci1hIDE3OTUzNTcwMDkwMDEgQUFBQTAwMDk="
    assert handle.encode() == text
    assert base64.urlsafe_b64decode(text) == b"v1 Orders broker-a 1795357009001 AAAA0009"
    # Java reads it without the padding, too.
    assert RecallHandle.decode(text) == RecallHandle.decode(text.rstrip("=")) == handle
    retry = properties | {"REAL_TOPIC": "%RETRY%g"}
    assert RecallHandle.of(retry, "broker-a") is None
    assert RecallHandle.of({"UNIQ_KEY": "k"}, "broker-a") is None


@pytest.mark.parametrize(
    "text", ["", "?", "é", "djEgT3JkZXJz", base64.urlsafe_b64encode(b"v2 T b 1 K").decode()]
)
def test_what_is_no_handle_is_refused_in_rocketmqs_words(text):
    with pytest.raises(BadInput, match=r"^recall handle is invalid$"):
        RecallHandle.decode(text)


def test_a_grpc_client_is_called_one():
    splitter = FrameSplitter()
    assert splitter.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == []
    assert "gRPC clients of RocketMQ 5" in str(splitter.failure)


def test_the_grpc_port_of_a_proxy_is_called_one():
    splitter = FrameSplitter()
    assert splitter.feed(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18)) == []
    assert "the gRPC port of a RocketMQ proxy" in str(splitter.failure)
