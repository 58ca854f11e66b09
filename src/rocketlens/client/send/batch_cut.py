"""Cuts messages into batches, each for one request."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from rocketlens.client.send.message import Message
from rocketlens.model import properties as props

T = TypeVar("T")

BATCH_BYTES: Final = 1 << 18
"""Of bodies in a batch. Brokers take 4 MiB; smaller ones fill the time until an answer comes."""
BATCH_MESSAGES: Final = 512


def cut_batches(rows: Iterable[T], message_of: Callable[[T], Message]) -> Iterator[list[T]]:
    """Yield rows in their order, in batches; a message with a delay is alone, as brokers want it.

    ``message_of`` returns the message of a row. All are of one topic.
    """
    batch: list[T] = []
    size = 0
    for row in rows:
        message = message_of(row)
        is_alone = message.delay_level or not props.TIMER_NAMES.isdisjoint(message.properties)
        size += len(message.body)
        if batch and (is_alone or len(batch) == BATCH_MESSAGES or size > BATCH_BYTES):
            yield batch
            batch, size = [], len(message.body)
        batch.append(row)
        if is_alone:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
