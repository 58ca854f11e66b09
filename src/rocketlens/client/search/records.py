"""Adds the records of a response to a search after verifying each one.

A broker finds messages by hash and does not compare keys. A record is accepted only if it is whole,
its checksum is correct, and its topic and key match.
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
    """Counts of a response, without its records."""

    records: int = 0
    stored_bytes: int = 0
    oldest_offset: int = 0
    """Physical offset of the record that is first in the log; its store time follows."""
    oldest_ms: int = 0
    least_ms: int = 0
    most_ms: int = 0
    set_back_ms: int = 0
    """The largest decrease from one store time to a later one in the log."""
    oldest_rank: tuple[Any, ...] = ()
    """The rank of the first record in the log, from `order_in_time`."""

    @property
    def held_bytes(self) -> int:
        return self.stored_bytes + self.records * limits.MESSAGE_OVERHEAD_BYTES


async def add_page(
    body: bytes, message_filter: MessageFilter, findings: Findings, damage: list[str]
) -> Page:
    """Add matching records of a response, newest first.

    Bodies that newer ones would displace are never decompressed, and records are decoded only as
    far as needed to reject them. If the filter reads bodies, this runs in a thread: decoding can
    take seconds. Needs the memory of the response once more.
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
    return message_filter.matching_in(view.record()) if message_filter.matches(view) else ()


def _page_of(views: Sequence[RecordView]) -> Page:
    """Return the counts of records that are sorted newest first."""
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


def merge_pages(pages: Sequence[Page]) -> Page:
    """Merge consecutive, non-empty pages into one."""
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
