"""Producers for programs without an event loop.

Generated from the async clients by ``make blocking``: change those instead.
"""

from collections.abc import Iterable

from rocketlens.client.blocking.blocking_client import SendsInBackground, SyncClient
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
        """Send a message, and wait until a broker has stored it.

        With ``sharding_key`` all messages of that key go to one queue; with ``queue`` to that.

        :raises BadInput: when the message cannot be sent: no broker was asked.
        :raises TopicNotFound: when no broker has the topic, or creates topics on demand.
        :raises BrokerError: when a broker refuses it, and another would, too.
        :raises SendFailed: when all attempts failed.
        """
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
        """Send several messages of one topic at once; they are stored side by side, or none is.

        :raises BadInput: if there are no messages, they differ in topic or WAIT, one is delayed, or
            together they are too large. Otherwise as `send`.
        """
        return self._thread.run(self._client.send_batch(messages, queue=queue, timeout_s=timeout_s))

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send a message without waiting for a response: if it is lost, no error is raised.

        :raises BadInput: if the message cannot be sent.
        :raises TopicNotFound: if no broker has the topic or creates topics on demand.
        :raises RemotingError: if there is no connection.
        """
        self._thread.run(self._client.send_oneway(message, queue=queue, sharding_key=sharding_key))

    def request(
        self,
        message: Message,
        timeout_s: float,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> ReplyMessage:
        """Send a message, and return the reply to it of the consumer that handled it.

        The consumer makes the reply with `reply_to`, and sends it; Java's clients can be on either
        side. ``timeout_s`` is for both, the message and the reply; the rest is as of `send`.

        :raises ReplyTimeout: when the message is stored, and no reply came in time.
        :raises BadAnswer: when the body of the reply cannot be decompressed.
        """
        return self._thread.run(
            self._client.request(message, timeout_s, queue=queue, sharding_key=sharding_key)
        )

    def recall(self, topic: str, recall_handle: str, *, timeout_s: float | None = None) -> str:
        """Take back a message before it is delivered; return its unique key.

        ``recall_handle`` is what its `SendResult` has. No consumer gets the message then. Brokers
        do not check that it is there: what was taken back already can be taken back again.

        :raises BadInput: if it is not a handle, or the topic is a group's: no broker was asked.
        :raises TopicNotFound: if no broker has the topic, or the message's broker has no master.
        :raises BrokerError: 16 if the broker allows no recalls (``recallMessageEnable``), 604 if
            the message is due, or of another topic, 3 if it is older than RocketMQ 5.5.
        :raises RemotingError: if there is no response; the message may be taken back.
        """
        return self._thread.run(self._client.recall(topic, recall_handle, timeout_s=timeout_s))

    def write_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that a topic's messages go to, in the order of broker name and id.

        :raises TopicNotFound: when no broker has the topic, or creates topics on demand.
        :raises RemotingError: when no name server answers.
        """
        return self._thread.run(self._client.write_queues(topic))


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
        """Send a half message, execute the local transaction, and end the message as it ended.

        If the end does not reach the broker, ``check`` is asked later.

        :raises BadInput: if the message is delayed.
        :raises Exception: what ``execute`` raises; the message stays open then. Otherwise as
            `Producer.send`.
        """
        return self._thread.run(
            self._client.send_in_transaction(message, execute, timeout_s=timeout_s)
        )
