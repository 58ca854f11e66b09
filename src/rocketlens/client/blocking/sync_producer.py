"""Producers for programs without an event loop.

Generated from the async clients by ``make blocking``: change those instead.
"""

from collections.abc import Iterable

from rocketlens.client.blocking.blocking_client import SendsInBackground, SyncClient, documented_by
from rocketlens.client.blocking.sync_cluster_client import SyncClusterClient
from rocketlens.client.connect.connection_settings import arguments_of, takes_settings
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer, ProducerSettings
from rocketlens.client.send.request_reply import ReplyMessage
from rocketlens.client.send.send_result import SendResult
from rocketlens.client.send.transaction_producer import (
    Execute,
    TransactionProducer,
    TransactionSendResult,
    TransactionSettings,
)


@documented_by(Producer)
class SyncProducer(SyncClusterClient[Producer], SendsInBackground[Producer]):
    """`rocketlens.Producer` with blocking calls; the same arguments."""

    @takes_settings(ProducerSettings)
    def __init__(self, settings: ProducerSettings) -> None:
        super().__init__(lambda: Producer(**arguments_of(settings)))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message, and wait until a broker has stored it."""
        return self._thread.run(
            self._client.send(message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s)
        )

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send several messages of one topic at once; they are stored side by side, or none is."""
        return self._thread.run(self._client.send_batch(messages, queue=queue, timeout_s=timeout_s))

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send a message without waiting for a response: if it is lost, no error is raised."""
        self._thread.run(self._client.send_oneway(message, queue=queue, sharding_key=sharding_key))

    def request(
        self,
        message: Message,
        timeout_s: float,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> ReplyMessage:
        """Send a message, and return the reply to it of the consumer that handled it."""
        return self._thread.run(
            self._client.request(message, timeout_s, queue=queue, sharding_key=sharding_key)
        )

    def recall(self, topic: str, recall_handle: str, *, timeout_s: float | None = None) -> str:
        """Take back a message before it is delivered; return its unique key."""
        return self._thread.run(self._client.recall(topic, recall_handle, timeout_s=timeout_s))

    def write_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that a topic's messages go to, in the order of broker name and id."""
        return self._thread.run(self._client.write_queues(topic))


@documented_by(TransactionProducer)
class SyncTransactionProducer(SyncProducer):
    """`rocketlens.TransactionProducer` with blocking calls; the same arguments.

    Plain functions run in threads, async ones in the event loop of this producer's own thread.
    """

    _client: TransactionProducer

    @takes_settings(TransactionSettings)
    def __init__(self, settings: TransactionSettings) -> None:
        SyncClient.__init__(self, lambda: TransactionProducer(**arguments_of(settings)))

    def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_s: float | None = None
    ) -> TransactionSendResult:
        """Send a half message, execute the local transaction, and end the message as it ended."""
        return self._thread.run(
            self._client.send_in_transaction(message, execute, timeout_s=timeout_s)
        )
