"""Texts that name one message."""

from tests.support import made_stores


def texts_for(record):
    """A text of each kind that names this record alone."""
    unique_key, key = made_stores.texts_of(record)[:2]
    return {
        "key": key,
        "unique-key": unique_key,
        "offset-id": record.offset_msg_id,
        "queue-offset": f"{record.topic}/{record.queue_id}/{record.queue_offset}",
    }
