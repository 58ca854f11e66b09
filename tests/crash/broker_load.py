"""What brokers are put under: senders that note what was acknowledged, and questions about it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from rocketlens.client.connect.queue_puller import tools_puller
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.search.records import add_page
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer
from rocketlens.client.send.send_result import SendStatus
from rocketlens.errors import (
    AnswerIncomplete,
    BrokerError,
    MessageNotFound,
    RemotingError,
    SendFailed,
    TopicNotFound,
)
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.lookup.message_filter import MessageFilter

TOPIC = "Orders"
WHOLE_BATCH = 5
LARGEST_BODY = 400

BROKER_GONE = (RemotingError, AnswerIncomplete, SendFailed, BrokerError, TopicNotFound)
"""What a client may be told by, and of, a broker that is stopped or killed meanwhile."""


class Acknowledged(NamedTuple):
    """A message that a broker said it has."""

    number: int
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    unique_key: str

    @property
    def physical_offset(self):
        return OffsetMessageId.decode(self.offset_msg_id).physical_offset

    @property
    def key(self):
        return f"k{self.number}"

    def is_shown_by(self, message):
        """Whether a message found is this one, in all that was sent and answered."""
        return (
            message.physical_offset == self.physical_offset
            and message.body == body_of(self.number)
            and (message.topic, message.queue_id) == (self.queue.topic, self.queue.queue_id)
            and message.queue_offset == self.queue_offset
        )


def body_of(number):
    """The body of a message, which tells it from all others."""
    randomness = random.Random(number)
    return b"%d:" % number + randomness.randbytes(randomness.randrange(LARGEST_BODY))


def message_of(number):
    """A message to send."""
    return Message(TOPIC, body_of(number), tags="TagA", keys=[f"k{number}", "all"])


class Load:
    """Messages are numbered, and a number is given once; what is acknowledged is kept."""

    def __init__(self, seed, queue=None):
        """``queue``: where everything is sent; without it the producer chooses."""
        self.queue = queue
        self.randomness = random.Random(seed)
        self.next_number = 0
        self.acknowledged: list[Acknowledged] = []

    async def send_one(self, producer):
        """Send a message or a batch, and keep what is acknowledged as it should be."""
        count = self.randomness.choice((1, 1, 1, WHOLE_BATCH))
        first, self.next_number = self.next_number, self.next_number + count
        messages = [message_of(first + n) for n in range(count)]
        if count == 1:
            result = await producer.send(messages[0], queue=self.queue)
        else:
            result = await producer.send_batch(messages, queue=self.queue)
        if result.send_status is not SendStatus.SEND_OK:
            return
        self.acknowledged += [
            Acknowledged(first + n, result.message_queue, result.queue_offset + n, *ids)
            for n, ids in enumerate(zip(result.offset_msg_ids, result.msg_ids, strict=True))
        ]

    async def send_until_gone(self, producer):
        """Send one after another until the broker does not answer."""
        while True:
            try:
                await self.send_one(producer)
            except BROKER_GONE:
                return

    async def ask_until_gone(self, admin):
        """Ask for what was acknowledged until the broker does not answer."""
        while True:
            # Another sender or asker goes on in between, when nothing was sent yet.
            await asyncio.sleep(0)
            if self.acknowledged:
                try:
                    await assert_found(admin, self.randomness.choice(self.acknowledged))
                except BROKER_GONE:
                    return

    def tasks(self, clients, senders=8, askers=2):
        """Begin to send and ask, until the broker is gone, which must have acknowledged something:
        there is nothing to ask for before.
        """
        producer, admin = clients
        return [
            *(asyncio.create_task(self.send_until_gone(producer)) for _ in range(senders)),
            *(asyncio.create_task(self.ask_until_gone(admin)) for _ in range(askers)),
        ]


async def undisturbed(tasks, seconds, is_enough=lambda: True):
    """Let tasks work for some time, and until they did enough; none of them ends."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    while not done and not is_enough():
        done, _ = await asyncio.wait(tasks, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        await task
    assert not done


@asynccontextmanager
async def clients_of(name_server, timeout_s=60.0) -> AsyncIterator[tuple[Producer, MQAdmin]]:
    """A producer that sends each message once, and an admin. How quick answers are is no matter."""
    async with (
        Producer(name_server, retries=0, send_timeout_s=timeout_s) as producer,
        MQAdmin(name_server, timeout_s=timeout_s) as admin,
    ):
        yield producer, admin


async def found_by_offset_id(admin, sent):
    return [await admin.view_message(sent.offset_msg_id)]


async def found_by_unique_key(admin, sent):
    return _complete(await admin.query_message_by_unique_key(TOPIC, sent.unique_key))


async def found_by_key(admin, sent):
    return _complete(await admin.query_message(TOPIC, sent.key))


async def found_by_queue_offset(admin, sent):
    """Pull it, as tools do."""
    damage: list[str] = []
    findings = Findings(AnswerMessages(1))
    route = await admin._cluster.route(TOPIC)
    address = route.brokers[sent.queue.broker_name].master
    puller = tools_puller(admin._cluster)
    pulled = await puller.pull(address, sent.queue, sent.queue_offset, count=1)
    await add_page(pulled.body, MessageFilter(topic=TOPIC), findings, damage)
    assert not damage
    return findings.messages.in_order()


WAYS = (found_by_offset_id, found_by_unique_key, found_by_key, found_by_queue_offset)


async def assert_found(admin, sent):
    """Have a message found in each of the four ways, as it was sent, and once."""
    for way in WAYS:
        try:
            found = await way(admin, sent)
        except MessageNotFound as error:
            raise AssertionError(f"{way.__name__}: {sent}") from error
        assert len(found) == 1, (way.__name__, sent, found)
        assert sent.is_shown_by(found[0]), (way.__name__, sent, found)


def _complete(answer):
    """Give the messages; an answer that is not whole says so itself."""
    if not answer.complete:
        raise AnswerIncomplete(f"{answer.query}: {answer.failures}", answer)
    return answer.messages
