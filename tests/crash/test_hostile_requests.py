"""A running broker and what nobody should send it, over its own port: others are served on."""

import asyncio
import json
import random
import re
import socket
import struct
from contextlib import suppress

import pytest

from rocketlens.errors import AnswerIncomplete, BrokerError, MessageNotFound, SendFailed
from rocketlens.formats import batch_body
from rocketlens.formats.batch_body import BatchMember
from rocketlens.model.message import Host
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.model.rocketmq import is_topic_name
from rocketlens.wire import frame
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import Connection, encode_command
from tests.crash.broker_load import TOPIC, Load, assert_found, clients_of
from tests.property.test_wire import SHORT_FRAMES, mutated
from tests.support.broker_process import BrokerProcess
from tests.support.broker_world import properties_of, send_fields, text_of
from tests.support.wire_samples import all_vectors

SEED = 20_241_125
MIB = 1024 * 1024
LONGEST_WAIT_S = 30
NAME_PARTS = (
    *("..", "/", "\\", ".", "~", "\0", "\n", "\r\n", "%2e%2e%2f", "%00", ":", "*", "?", " ", "-rf"),
    *("etc", "passwd", "x", "Orders", "config", "topics.json", "commitlog", "lock", "C:", "NUL"),
    *("消息", "é", "\u202e", "\u2044", "\uff0e\uff0e\uff0f", "\U0001f4a9", "a" * 100, "$(id)", ";"),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all of them: none of them may end it."""
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "broker") as running:
        running.start()
        yield running
        running.stop()
        assert "Traceback" not in running.said()


@pytest.fixture(autouse=True)
def _is_served_on(broker):
    """After each test, a message is sent and found as before it."""
    yield

    async def send_and_find():
        load = Load(SEED)
        async with clients_of(broker.name_server) as (producer, admin):
            await load.send_one(producer)
            for sent in load.acknowledged:
                found = await admin.query_message_by_unique_key(TOPIC, sent.unique_key)
                assert len(found) == 1

    asyncio.run(send_and_find())


class Peer:
    """A raw connection."""

    def __init__(self, broker):
        self.socket = socket.create_connection(("127.0.0.1", broker.port), LONGEST_WAIT_S)
        self.connection = Connection()

    def answers_to(self, requests):
        """Send ``(code, fields, body)`` requests in one go; gives the answers by request."""
        content, opaques = [], []
        for code, fields, body in requests:
            texts = {name: text_of(value) for name, value in fields.items() if value is not None}
            opaque, request = self.connection.request(int(code), texts, body, context=None)
            content.append(request)
            opaques.append(opaque)
        self.socket.sendall(b"".join(content))
        answers = {}
        while len(answers) < len(opaques):
            received = self.socket.recv(MIB)
            assert received, "the broker ended the connection"
            for event in self.connection.receive(received):
                answers[event.command.opaque] = event.command
        return [answers[opaque] for opaque in opaques]

    def is_ended_by(self, content):
        """Whether the broker ends the connection, answering nothing, after some bytes."""
        with suppress(OSError):
            self.socket.sendall(content)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()


@pytest.fixture
def peer(broker):
    connected = Peer(broker)
    yield connected
    connected.close()


def hostile_names(count):
    """Names that lead out of a directory, or would in some system, and no topic can have."""
    randomness = random.Random(SEED)
    names = {"../../x", "..", ".", "/", "/etc/passwd", "x" * 256, "", " ", "\0"}
    while len(names) < count:
        name = "".join(randomness.choices(NAME_PARTS, k=randomness.randrange(1, 8)))
        if not is_topic_name(name):
            names.add(name)
    return sorted(names)


def requests_with(name):
    """Everything that makes a file or a directory, or an entry in a table, of a name."""
    properties = properties_of(UNIQ_KEY="F" * 32)
    member = batch_body.encode([BatchMember(0, b"body", properties.encode())])
    topic = {
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "defaultTopic": "TBW102",
        "order": False,
    }
    back = {"offset": 0, "group": name, "delayLevel": 0, "originTopic": name}
    place = {"queueId": 0, "commitOffset": 1}
    heartbeat = {
        "clientID": name,
        "consumerDataSet": [
            {"groupName": name, "subscriptionDataSet": [{"topic": name, "subString": "*"}]}
        ],
    }
    real = properties_of(REAL_TOPIC=name, REAL_QID="0", DELAY="1", RETRY_TOPIC=name)
    return [
        (RequestCode.SEND_MESSAGE_V2, send_fields(name, properties), b"body"),
        (RequestCode.SEND_MESSAGE_V2, send_fields("%RETRY%" + name, properties), b"body"),
        (RequestCode.SEND_BATCH_MESSAGE, send_fields(name, properties) | {"m": True}, member),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": name} | topic, b""),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name}, b""),
        (RequestCode.CONSUMER_SEND_MSG_BACK, back, b""),
        (RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": name, "topic": name} | place, b""),
        (RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode()),
        (RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC, real), b"body"),
    ]


MUST_BE_REFUSED = 4
GROWING = ("commitlog", "index")
DIRECTORIES = {
    ("config",),
    ("consumequeue",),
    ("consumequeue", TOPIC),
    ("consumequeue", "SCHEDULE_TOPIC_XXXX"),
    # What the index builder may have begun only now.
    ("rocketlens", "scratch"),
    ("rocketlens", "index.json"),
    ("rocketlens", "index.lock"),
}
TABLE = re.compile(
    r"config/([a-zA-Z]+\.json(\.bak|\.changes)?|\.[a-zA-Z]+\.json(\.bak)?\.\d+\.new)"
    r"|(rocketlens/\.index\.json|\.checkpoint)\.\d+\.new"
)
"""A table, or one that is being written, as the checkpoint and the index builder's state are."""


def files_outside(broker):
    store = broker.store
    root = broker.directory.parent.parent
    return {path for path in root.rglob("*") if store not in path.parents}


def files_inside(broker):
    return {path.relative_to(broker.store) for path in broker.store.rglob("*")}


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_name_leads_out_of_the_store_nor_makes_a_directory_of_its_own(broker, peer, count):
    outside = files_outside(broker)
    made = files_inside(broker)
    names = hostile_names(count)
    for start in range(0, len(names), 50):
        requests = [each for name in names[start : start + 50] for each in requests_with(name)]
        answers = peer.answers_to(requests)
        kinds = len(requests) // len(names[start : start + 50])
        for number, (request, answer) in enumerate(zip(requests, answers, strict=True)):
            if number % kinds < MUST_BE_REFUSED:
                assert answer.code != 0, (request, answer)
    assert files_outside(broker) == outside
    new = {path.parts[:2] for path in files_inside(broker) - made if path.parts[0] not in GROWING}
    for path in new:
        assert path in DIRECTORIES or TABLE.fullmatch("/".join(path)), path


HOSTILE_VALUES = (
    *("", "0", "-1", "2147483648", "1e999", "true", "null", "*", "..", "/", "/etc/passwd", "~root"),
    *("$(id)", "`id`", "; id", "| id", "\0", "\r\nflushDiskType=SYNC_FLUSH", "x" * 65_536),
    "\u202e",
)


def test_no_key_of_the_configuration_is_changed_by_a_request(peer):
    told = (RequestCode.GET_BROKER_CONFIG, {}, b"")
    before = peer.answers_to([told])[0].body
    keys = [line.partition("=")[0] for line in before.decode().splitlines()]
    assert {"storePathRootDir", "rocketmqHome"} & set(keys)
    for key in (*keys, "rocketmqHome", "filterServerNums", "authenticationEnabled", "noSuchKey"):
        requests = [
            (RequestCode.UPDATE_BROKER_CONFIG, {}, f"{key}={value}\n".encode())
            for value in HOSTILE_VALUES
        ]
        assert {answer.code for answer in peer.answers_to(requests)} == {16}
    assert peer.answers_to([told])[0].body == before


@pytest.mark.parametrize("header_codec", [*range(2, 6), 127, 128, 255])
def test_a_header_codec_that_nobody_knows_ends_the_connection(peer, header_codec):
    assert peer.is_ended_by(struct.pack(">iBBH", 6, header_codec, 0, 2) + b"{}")


LENGTH_LIES = {
    "nothing": struct.pack(">i", 0),
    "three": struct.pack(">i", 3),
    "negative": struct.pack(">i", -1),
    "2 GiB": struct.pack(">i", 2**31 - 1),
    "over 16 MiB": struct.pack(">i", 16 * MIB),
    "header longer than the frame": struct.pack(">ii", 100, 97),
    "TLS": b"\x16\x03\x01\x02",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("lie", LENGTH_LIES.values(), ids=LENGTH_LIES)
def test_a_length_that_lies_ends_the_connection(peer, lie):
    assert peer.is_ended_by(lie)


HOSTILE_HEADERS = {
    "deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a huge integer": b'{"code":' + b"9" * 10_000 + b"}",
    "huge": b'{"code":10,"x":"' + b"x" * 500_000 + b'"}',
    "no JSON": b"\xff" * 100,
}


@pytest.mark.parametrize("header", HOSTILE_HEADERS.values(), ids=HOSTILE_HEADERS)
def test_a_header_that_is_none_ends_the_connection(peer, header):
    assert peer.is_ended_by(frame.encode(header))


def test_bodies_and_batches_over_the_limit_are_refused_and_the_connection_goes_on(broker, peer):
    before = broker.kib("RssAnon")
    properties = properties_of(UNIQ_KEY="F" * 32)
    large = bytes(4 * MIB + 1)
    members = [BatchMember(0, bytes(MIB), properties.encode())] * 5
    fields = send_fields(TOPIC, properties)
    for _ in range(20):
        answers = peer.answers_to(
            [
                (RequestCode.SEND_MESSAGE_V2, fields, large),
                (RequestCode.SEND_BATCH_MESSAGE, fields | {"m": True}, batch_body.encode(members)),
                (RequestCode.SEND_BATCH_MESSAGE, fields | {"m": True}, b"\x7f\xff\xff\xff" * 100),
                (RequestCode.SEND_MESSAGE_V2, fields | {"i": properties_of(a="x" * 32_768)}, b""),
            ]
        )
        for answer in answers[:2] + answers[3:]:
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer
        assert answers[2].code != 0
    assert broker.kib("RssAnon") - before < 64 * 1024


def test_a_thousand_slow_connections_cost_little_and_slow_nobody(broker):
    before_kib, before_count = broker.kib("RssAnon"), broker.descriptor_count()
    slow = [Peer(broker) for _ in range(1_000)]
    request = encode_command(
        RemotingCommand(int(RequestCode.GET_BROKER_RUNTIME_INFO), 1, 0, None, {}, b"")
    )
    quick = Peer(broker)
    for byte in request[:12]:
        for each in slow:
            each.socket.sendall(bytes([byte]))
        (answer,) = quick.answers_to([(RequestCode.GET_BROKER_RUNTIME_INFO, {}, b"")])
        assert answer.code == 0
    assert broker.descriptor_count() >= 1_000
    assert broker.kib("RssAnon") - before_kib < 100 * 1024
    for each in (*slow, quick):
        each.close()
    # Meanwhile it may have opened files of its store.
    while broker.descriptor_count() > before_count + 100:
        Peer(broker).close()


@pytest.mark.parametrize("count", [2_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_whatever_comes_over_a_connection_the_broker_goes_on(broker, count):
    """Real requests of the real client with some bytes changed, on many connections."""
    frames = SHORT_FRAMES + [
        bytes.fromhex(words[2]) for _, words in all_vectors("frame") if len(words[2]) < 4_000
    ]
    randomness = random.Random(SEED)
    before_kib = broker.kib("RssAnon")
    peers = []
    for _ in range(count):
        if not peers or randomness.random() < 0.2:
            peers.append(Peer(broker))
        if len(peers) > 100:
            peers.pop(randomness.randrange(100)).close()
        each = randomness.choice(peers)
        try:
            each.socket.sendall(mutated(randomness, frames))
        except OSError:
            each.close()
            peers.remove(each)
    for each in peers:
        each.close()
    assert broker.kib("RssAnon") - before_kib < 64 * 1024


async def test_forged_offset_ids_lead_to_no_connection_outside_the_route(broker):
    trap = socket.create_server(("127.0.0.1", 0))
    trap.settimeout(0)
    outside = Host("127.0.0.1", trap.getsockname()[1])
    forged = [OffsetMessageId(outside, n * 7).encode() for n in range(1_000)]
    # Brokers are asked about such ids, too, as the origin of a message sent back.
    origin = {"group": "readers", "delayLevel": 0, "originTopic": TOPIC}
    load = Load(SEED)
    load.next_number = 1_000
    async with clients_of(broker.name_server) as (producer, admin):
        await load.send_one(producer)
        for number, msg_id in enumerate(forged):
            asked = (producer, admin)[number % 2]
            with pytest.raises((MessageNotFound, AnswerIncomplete, BrokerError, SendFailed)):
                await (
                    asked.view_message(TOPIC, msg_id) if number % 3 else asked.view_message(msg_id)
                )
        await assert_found(admin, load.acknowledged[-1])
    peer = Peer(broker)
    peer.answers_to(
        (RequestCode.CONSUMER_SEND_MSG_BACK, origin | {"offset": n, "originMsgId": each}, b"")
        for n, each in enumerate(forged[:200])
    )
    peer.close()
    with pytest.raises(BlockingIOError):
        trap.accept()
    trap.close()
