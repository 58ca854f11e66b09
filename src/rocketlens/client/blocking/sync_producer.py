"""Producers for programs without an event loop."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from rocketlens.client.blocking.blocking_client import SyncClusterClient, waits
from rocketlens.client.connect.connection_settings import arguments_of, takes_settings
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer, ProducerSettings
from rocketlens.client.send.send_result import SendResult
from rocketlens.client.send.transaction_producer import TransactionProducer, TransactionSettings

T = TypeVar("T")


class SyncProducer(SyncClusterClient[Producer]):
    """`rocketlens.Producer` with blocking calls; the same arguments."""

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
        """Start to send; the future has the result, and takes callbacks.

        Callbacks run in the client's thread: they must not block, nor call this client.
        """
        result: Future[SendResult] = Future()
        result.set_running_or_notify_cancel()
        work = self._client.send(
            message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s
        )
        self._thread.run(_begin(work, result))
        return result


class SyncTransactionProducer(SyncProducer):
    """`rocketlens.TransactionProducer` with blocking calls; the same arguments.

    Plain functions run in threads, async ones in the event loop of this producer's own thread.
    """

    _client: TransactionProducer

    @takes_settings(TransactionSettings)
    def __init__(self, settings: TransactionSettings) -> None:
        # Its base makes another client.
        SyncClusterClient.__init__(self, lambda: TransactionProducer(**arguments_of(settings)))

    send_in_transaction = waits(TransactionProducer.send_in_transaction)


async def _begin(work: Coroutine[Any, Any, T], result: "Future[T]") -> None:
    """Start ``work`` in the background; ``result`` gets its result or error."""
    task = asyncio.get_running_loop().create_task(work)

    def done(_: object) -> None:
        if task.cancelled():
            result.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    _RUNNING.add(task)
    task.add_done_callback(_RUNNING.discard)
    task.add_done_callback(done)


_RUNNING: Final[set["asyncio.Task[Any]"]] = set()
"""A reference: the event loop keeps none to a task."""
