"""Our producer and MQAdmin on real brokers: Java finds what we sent, and we what Java sent."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketlens.client.connect.cluster import Credentials
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.send.message import Message, encoded_properties
from rocketlens.client.send.producer import Producer
from rocketlens.client.send.send_request import Compression
from rocketlens.client.send.send_result import SendResult, SendStatus
from rocketlens.client.send.unique_key import own_address
from rocketlens.errors import MessageNotFound, SendFailed
from rocketlens.model import properties as props
from rocketlens.model.message_id import UniqueKey, pack_address
from rocketlens.model.text.java import string_hash
from rocketlens.net.tls import client_context
from tests.peer.rocketmq_peer import POLL_SECONDS
from tests.support.patience import PATIENCE_S

PROGRAM = Path(__file__).parent / "java" / "ClientJudge.java"
OURS, JAVAS = "PythonTopic", "JavaTopic"
VERSIONS = ("4.9.7", "5.5.0")
MANY = 150
"""Messages of one key, sent within a second: more than a broker gives at once."""


class Sent(NamedTuple):
    message: Message
    msg_id: str
    offset_msg_id: str | None


def text(hexadecimal):
    return None if hexadecimal == "null" else bytes.fromhex(hexadecimal).decode()


class Shown(NamedTuple):
    """One message as ClientJudge shows it."""

    msg_id: str
    offset_msg_id: str
    topic: str
    tags: str | None
    keys: str | None
    flag: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: dict[str, str]

    @classmethod
    def of(cls, fields):
        msg_id, offset_msg_id, topic, tags, keys, *numbers, body, properties = fields
        return cls(
            msg_id,
            offset_msg_id,
            topic,
            text(tags),
            text(keys),
            *map(int, numbers),
            bytes.fromhex(body[1:]),
            props.parse(text(properties)),
        )


def as_shown(message):
    return Shown(
        message.msg_id,
        message.offset_msg_id,
        message.topic,
        message.tags,
        message.properties.get("KEYS"),
        message.flag,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.body,
        dict(message.properties),
    )


async def send_everything(name_servers):
    """One message of every kind that a producer can send, and many of one key."""
    sent = []

    async def send(producer, message, **options):
        result = await producer.send(message, **options)
        assert result.send_status is SendStatus.SEND_OK
        sent.append(Sent(message, result.msg_id, result.offset_msg_id))
        return result

    async with Producer(
        name_servers, group="python_producer", send_timeout_s=PATIENCE_S
    ) as producer:
        # First: it takes a second until it is there.
        delayed = Message(OURS, "later", keys="ours-delayed", delay_level=1)
        sent.append(Sent(delayed, (await producer.send(delayed)).msg_id, None))
        properties = {"colour": "blau", "größe": "12 Ä 😀"}
        plain = Message(
            OURS, "hello", tags="TagA", keys=["ours-1", "ours-2"], properties=properties, flag=-5
        )
        await send(producer, plain)
        await send(producer, Message(OURS, b"z" * 50_000, tags="TagZ", keys="ours-zlib"))
        queue = MessageQueue(OURS, "broker-a", 3)
        result = await send(producer, Message(OURS, "to 3", keys="ours-queue"), queue=queue)
        assert result.message_queue == queue
        await send(producer, Message(OURS, "shard", keys="ours-shard"), sharding_key="order-1")
        one_way = Message(OURS, "one way", keys="ours-oneway")
        await producer.send_oneway(one_way)
        sent.append(Sent(one_way, one_way.unique_key, None))
        batch = [Message(OURS, f"member {n}", tags="TagB", keys="ours-many") for n in range(50)]
        result = await producer.send_batch(batch)
        sent += map(Sent, batch, result.msg_ids, result.offset_msg_ids)
        many = [Message(OURS, f"many {n}", keys="ours-many") for n in range(MANY - 50)]
        await asyncio.gather(*[send(producer, message) for message in many])
    return sent


async def send_compressed(name_servers, *compressions):
    sent = []
    for compression in compressions:
        async with Producer(
            name_servers, compression=compression, send_timeout_s=PATIENCE_S
        ) as producer:
            message = Message(OURS, b"c" * 20_000, keys="ours-compressed")
            result = await producer.send(message)
            found = await producer.view_message(result.offset_msg_id)
            assert found.body == message.body
            assert found.store_size < 1000
            sent.append(Sent(message, result.msg_id, result.offset_msg_id))
    return sent


async def until_found(ask):
    """Ask until there is an answer: RocketMQ indexes after it has acknowledged."""
    async with asyncio.timeout(PATIENCE_S):
        while not (answer := await ask()):  # noqa: ASYNC110 - the broker indexes by itself
            await asyncio.sleep(POLL_SECONDS)
    return answer


async def look_ours_up(name_servers, sent):
    """Find everything that we sent, by each of its ids and keys; give what was shown by id."""
    shown = {}
    async with MQAdmin(name_servers) as admin:
        # Of those that are many, which one query gives, some are enough.
        some = [each for each in sent if each.message.keys != ("ours-many",)]
        some += [each for each in sent if each not in some][::10]
        for message, msg_id, offset_msg_id in some:
            answer = await until_found(
                lambda msg_id=msg_id: admin.query_message_by_unique_key(OURS, msg_id)
            )
            (found,) = answer.messages
            assert answer.complete
            assert (found.body, found.tags, found.keys) == (
                message.body,
                message.tags,
                message.keys,
            )
            if offset_msg_id is not None:
                assert found.offset_msg_id == offset_msg_id
                assert await admin.view_message(offset_msg_id) == found
                assert await admin.view_message(OURS, offset_msg_id) == found
            assert await admin.view_message(OURS, msg_id) == found
            shown[msg_id] = as_shown(found)

        async def all_of_them():
            answer = await admin.query_message(OURS, "ours-many", None)
            return answer if len(answer) == MANY else None

        many = await until_found(all_of_them)
        shown |= {each.msg_id: as_shown(each) for each in many if each.msg_id not in shown}
        assert {each.body for each in many} == {
            each.message.body for each in sent if each.message.keys == ("ours-many",)
        }
        assert len(await admin.query_message(OURS, "ours-many", 70)) == 70
        times = [each.store_timestamp_ms for each in many]
        middle = times[len(times) // 2]
        within = await admin.query_message(OURS, "ours-many", None, middle, middle + 20)
        assert [each.store_timestamp_ms for each in within] == [
            each for each in times if middle <= each <= middle + 20
        ]
        with pytest.raises(MessageNotFound):
            await admin.view_message(OURS, "0" * 32)
    return shown


async def look_javas_up(name_servers, sent):
    plain, large, batch = sent
    async with MQAdmin(name_servers) as admin:
        found = await admin.view_message(plain.offset_msg_id)
        assert (found.msg_id, found.tags, found.keys) == (
            plain.msg_id,
            "TagJ",
            ("java-1", "java-2"),
        )
        assert (found.body.decode(), found.flag) == ("from Java, 来自", 7)
        assert found.properties["colour"] == "blue"
        assert await admin.view_message(JAVAS, plain.msg_id) == found
        for key in ("java-1", "java-2", plain.msg_id):
            answer = await until_found(lambda key=key: admin.query_message(JAVAS, key))
            assert answer.messages == (found,)
        found = await admin.view_message(JAVAS, large.msg_id)
        assert (found.body, found.sys_flag) == (bytes(10_000), 769)
        answer = await until_found(lambda: admin.query_message(JAVAS, "java-batch", None))
        assert sorted(each.msg_id for each in answer) == sorted(batch.msg_ids)
        assert {each.offset_msg_id for each in answer} == set(batch.offset_msg_ids)
        queue = MessageQueue(JAVAS, plain.message_queue.broker_name, found.queue_id)
        assert await admin.min_offset(queue) == 0
        assert await admin.max_offset(queue) > found.queue_offset
        assert await admin.search_offset(queue, found.store_timestamp_ms) <= found.queue_offset
        assert await admin.earliest_message_store_time(queue) <= found.store_timestamp_ms


async def create(name_servers, topic):
    async with MQAdmin(name_servers) as admin:
        await admin.create_topic(topic, 4)
        async with (
            asyncio.timeout(PATIENCE_S),
            Producer(name_servers, send_timeout_s=PATIENCE_S) as producer,
        ):
            result = await producer.send(Message(topic, "x"))
            assert result.message_queue.topic == topic
        return await admin.message_queues(topic)


def result_of_java(fields):
    printed, msg_id, offset_msg_id, broker_name, queue_id, queue_offset, _, region, trace = fields
    result = SendResult(
        SendStatus.SEND_OK,
        msg_id,
        offset_msg_id,
        MessageQueue(JAVAS, broker_name, int(queue_id)),
        int(queue_offset),
        region_id=region,
        trace_on=trace == "true",
    )
    return printed, result


@pytest.mark.parametrize("version", VERSIONS)
def test_our_clients_and_javas_find_what_the_other_sent(peer, real_broker, version, tmp_path):
    name_servers = real_broker(version).namesrv_address
    sent = asyncio.run(send_everything(name_servers))
    asks = [f"view\t{OURS}\t{each.msg_id}" for each in sent[1:]]
    asks += [f"view\t{OURS}\t{each.offset_msg_id}" for each in sent[1:] if each.offset_msg_id]
    keys = {key for each in sent[1:] for key in each.message.keys} - {"ours-many"}
    asks += [f"key\t{OURS}\t{key}" for key in sorted(keys)]
    (tmp_path / "asks").write_text("\n".join(asks))
    printed = peer.java(
        version, PROGRAM, name_servers, OURS, str(len(sent)), str(tmp_path / "asks"), JAVAS
    )
    lines = [line.split("\t")[1:] for line in printed.splitlines() if line.startswith("judge\t")]
    shown = asyncio.run(look_ours_up(name_servers, sent))
    judge_looks(lines, sent, shown)
    java_sent = [result_of_java(line[1:]) for line in lines if line[0] == "sent"]
    for java_text, result in java_sent:
        assert result.text(with_recall_handle=version == "5.5.0") == java_text
    asyncio.run(look_javas_up(name_servers, [result for _, result in java_sent]))
    judge_details(lines, version)
    assert len(asyncio.run(create(name_servers, "Made"))) == 4
    tool = ["queryMsgByUniqueKey", "-n", name_servers, "-t", OURS, "-i", sent[1].msg_id]
    said = peer.mqadmin(version, *tool)
    for words in (f"UNIQ_KEY={sent[1].msg_id}", "[TagA]", "[ours-1 ours-2]", "colour=blau"):
        assert words in said
    if version == "5.5.0":
        sent = asyncio.run(send_compressed(name_servers, Compression.LZ4, Compression.ZSTD))
        tool = ["queryMsgByKey", "-n", name_servers, "-t", OURS, "-k", "ours-compressed"]
        said = peer.mqadmin(version, *tool)
        assert all(one.msg_id in said for one in sent)


def judge_looks(lines, sent, shown):
    """Java's consumer, views and queries give just what our own look-ups give."""
    consumed = [Shown.of(line[2:]) for line in lines if line[0] == "consumed"]
    assert len(consumed) == len(sent)
    for each in consumed:
        # Where it was pulled from, and how far the queue goes.
        pulled = {"MIN_OFFSET", "MAX_OFFSET"}
        kept = {name: value for name, value in each.properties.items() if name not in pulled}
        assert each._replace(properties=kept) == shown[each.msg_id]
    views = [(line[1], Shown.of(line[2:])) for line in lines if line[0] == "view"]
    by_id = {each.offset_msg_id: each.msg_id for each in shown.values()}
    assert len(views) > len(sent)
    for asked, each in views:
        assert each == shown[by_id.get(asked, asked)]
    found = {(line[1], Shown.of(line[2:]).msg_id) for line in lines if line[0] == "key"}
    assert found == {
        (key, each.msg_id) for each in sent[1:] for key in each.message.keys if key != "ours-many"
    }


def judge_details(lines, version):
    """Addresses in ids, the order of properties and the choice of queues are Java's."""
    (address,) = [line[1] for line in lines if line[0] == "address"]
    assert pack_address(own_address()).hex() == address
    plain = next(line for line in lines if line[0] == "sent")
    assert UniqueKey.decode(plain[2]).address == own_address()
    properties = props.parse(text(plain[7]))
    ours = encoded_properties(properties)
    assert text(plain[7]) == (ours.removesuffix("\x02") if version == "4.9.7" else ours)
    shards = [line[1:] for line in lines if line[0] == "shard"]
    assert len(shards) == 4
    for key, chosen in shards:
        assert abs(string_hash(text(key))) % 4 == int(chosen)


ACL = """\
globalWhiteRemoteAddresses:
accounts:
  - accessKey: administrator
    secretKey: 12345678
    whiteRemoteAddress:
    admin: true
  - accessKey: reader-1
    secretKey: 87654321
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - Guarded=SUB
"""
AUTH = "org.apache.rocketmq.auth.authentication.provider"
WHO_ASKS = {
    "4.9.7": {"aclEnable": True},
    "5.5.0": {
        "authenticationEnabled": True,
        "authenticationProvider": f"{AUTH}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{AUTH}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": '{"username":"administrator","password":"12345678"}',
        "innerClientAuthenticationCredentials": (
            '{"accessKey":"administrator","secretKey":"12345678"}'
        ),
    },
}


def guard(peer, certificate, directory, monkeypatch):
    """Have real brokers in a directory take TLS and accounts; return the certificate."""
    file, key = certificate
    conf = directory / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACL)
    options = {"tls.server.mode": "permissive", "tls.test.mode.enable": "false"}
    options |= {"tls.server.certPath": file, "tls.server.keyPath": key}
    java_options = (f"-D{name}={value}" for name, value in options.items())
    monkeypatch.setattr(peer, "jvm_options", (*peer.jvm_options, *java_options))
    return file


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_real_brokers_that_ask_who_we_are_are_reached_with_keys_and_tls(
    peer, certificate, tmp_path, monkeypatch, version
):
    file = guard(peer, certificate, tmp_path, monkeypatch)

    async def ask(broker):
        reached = {"name_servers": broker.namesrv_address, "tls": client_context(ca=file)}
        known = Credentials("administrator", "12345678")
        async with Producer(**reached, credentials=known) as producer:
            sent = await producer.send(Message("Guarded", "hello", keys="K"))
            answer = await until_found(lambda: producer.query_message("Guarded", "K"))
            by_id = await producer.view_message("Guarded", sent.msg_id)
            by_offset = await producer.view_message(sent.offset_msg_id)
        assert [m.msg_id for m in answer] == [by_id.msg_id] == [by_offset.msg_id] == [sent.msg_id]
        for wrong in (None, Credentials("administrator", "1234567"), Credentials("nobody", "1")):
            async with Producer(**reached, credentials=wrong, retries=0) as stranger:
                with pytest.raises(SendFailed):
                    await stranger.send(Message("Guarded", "hello"))
                answer = await stranger.query_message("Guarded", "K")
                assert (answer.complete, answer.messages) == (False, ())
        if version == "4.9.7":
            reader = Credentials("reader-1", "87654321")
            async with Producer(**reached, credentials=reader, retries=0) as reading:
                assert len(await reading.query_message("Guarded", "K")) == 1
                with pytest.raises(SendFailed, match="permission"):
                    await reading.send(Message("Guarded", "hello"))

    settings = WHO_ASKS[version]
    if version == "5.5.0":
        settings = {**settings, "authConfigPath": tmp_path / "auth"}
    with peer.start(version, tmp_path, **settings) as broker:
        asyncio.run(ask(broker))
