"""Stored records in a response's body, verified one by one before they are returned.

A broker finds messages by hash and does not compare. A record is accepted only if it is whole, its
checksum is right, it is of the topic, and it really has the key.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rocketlens import limits
from rocketlens.client.connect.queue_puller import views_in
from rocketlens.formats.commitlog_record import Record, RecordView
from rocketlens.net.pace import in_thread
from rocketlens.query.answer_builder import Findings, order_in_time
from rocketlens.query.lookup.message_filter import MessageFilter


class Page(NamedTuple):
    """Counts of a response; the records themselves are not kept."""

    records: int = 0
    stored_bytes: int = 0
    oldest_offset: int = 0
    """Physical offset and store time of the record that is first in the log."""
    oldest_ms: int = 0
    least_ms: int = 0
    """The minimum store time."""
    most_ms: int = 0
    """The maximum store time."""
    set_back_ms: int = 0
    """The maximum by which a store time is below one that is before it in the log."""
    oldest_rank: tuple[Any, ...] = ()
    """The rank of the record that is first in the log, as `order_in_time` has it."""

    @property
    def held_bytes(self) -> int:
        """Minimum memory of its messages, in bytes."""
        return self.stored_bytes + self.records * limits.MESSAGE_OVERHEAD_BYTES


async def take_page(
    body: bytes, message_filter: MessageFilter, findings: Findings, damage: list[str]
) -> Page:
    """Add matching records of a response, newest first.

    So a body that newer ones would displace is never decompressed, and of a record that matches
    nothing no more is decoded than decides it. Where bodies are looked at, that is done in a
    thread: decoding one can take seconds. Takes the memory of the response once more while it runs.
    """
    views = sorted(
        views_in(body, damage),
        key=lambda view: (view.store_timestamp_ms, view.physical_offset),
        reverse=True,
    )
    if message_filter.reads_body:
        matching = await in_thread(
            lambda: [record for view in views for record in _matching(view, message_filter)]
        )
        for record in matching:
            findings.take(record)
        return _page_of(views)
    for view in views:
        if findings.is_past(view.store_timestamp_ms) and message_filter.counts_nothing:
            break
        for record in _matching(view, message_filter):
            findings.take(record)
    return _page_of(views)


def _matching(view: RecordView, message_filter: MessageFilter) -> Sequence[Record]:
    """Return the messages of a record that match."""
    return message_filter.matching_in(view.record()) if message_filter.matches(view) else ()


def _page_of(views: Sequence[RecordView]) -> Page:
    """Return the counts of a response whose records these are, newest first."""
    if not views:
        return Page()
    in_log = sorted(views, key=lambda view: view.physical_offset)
    latest_ms, set_back_ms = 0, 0
    for view in in_log:
        stored_ms = view.store_timestamp_ms
        if stored_ms >= latest_ms:
            latest_ms = stored_ms
        else:
            set_back_ms = max(set_back_ms, latest_ms - stored_ms)
    oldest = in_log[0].record()
    return Page(
        len(views),
        sum(view.total_size for view in views),
        oldest.physical_offset,
        oldest.store_timestamp_ms,
        views[-1].store_timestamp_ms,
        views[0].store_timestamp_ms,
        set_back_ms,
        order_in_time(oldest),
    )


def joined(pages: Sequence[Page]) -> Page:
    """Return pages that follow one another, none of them empty, as one."""
    if len(pages) < 2:
        return pages[0] if pages else Page()
    latest_ms, set_back_ms = 0, 0
    for page in pages:
        set_back_ms = max(set_back_ms, page.set_back_ms, latest_ms - page.least_ms)
        latest_ms = max(latest_ms, page.most_ms)
    oldest = min(pages, key=lambda page: page.oldest_offset)
    return Page(
        sum(page.records for page in pages),
        sum(page.stored_bytes for page in pages),
        oldest.oldest_offset,
        oldest.oldest_ms,
        min(page.least_ms for page in pages),
        latest_ms,
        set_back_ms,
    )
