"""Blocking producers."""

from concurrent.futures import Future

from rocketlens.client.blocking.blocking_client import SyncClusterClient, waits
from rocketlens.client.connect.connection_settings import arguments_of, takes_settings
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer, ProducerSettings
from rocketlens.client.send.send_result import SendResult
from rocketlens.client.send.transaction_producer import TransactionProducer, TransactionSettings


class SyncProducer(SyncClusterClient[Producer]):
    """Blocking `rocketlens.Producer`, with the same arguments."""

    @takes_settings(ProducerSettings)
    def __init__(self, settings: ProducerSettings) -> None:
        super().__init__(lambda: Producer(**arguments_of(settings)))

    send = waits(Producer.send)
    send_batch = waits(Producer.send_batch)
    send_oneway = waits(Producer.send_oneway)
    request = waits(Producer.request)
    recall = waits(Producer.recall)
    write_queues = waits(Producer.write_queues)

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> Future[SendResult]:
        """Start to send; return a future of the result, which accepts callbacks.

        Callbacks run in the client's thread: they must not block or call this client. Cancelling
        the future cancels the send, but the message may be stored.
        """
        return self._thread.submit(
            self._client.send(message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s)
        )


class SyncTransactionProducer(SyncProducer):
    """Blocking `rocketlens.TransactionProducer`, with the same arguments.

    Plain functions run in threads, async ones in the event loop of this producer's thread.
    """

    _client: TransactionProducer

    @takes_settings(TransactionSettings)
    def __init__(self, settings: TransactionSettings) -> None:
        # SyncProducer's constructor would create a plain Producer.
        SyncClusterClient.__init__(self, lambda: TransactionProducer(**arguments_of(settings)))

    send_in_transaction = waits(TransactionProducer.send_in_transaction)
