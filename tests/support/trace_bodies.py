"""Bodies of trace messages, whole and damaged, and what a search by content finds in them."""

import gzip

from rocketlens.formats.trace_body import TraceRecord, TraceType, encode


def record(keys, trace_type=TraceType.PUB):
    """Return a record of a client about a message with these keys, as it is stored."""
    return encode(
        TraceRecord(
            trace_type,
            "U-1",
            timestamp_ms=1_700_000_000_000,
            region_id="R",
            group="billing",
            topic="Orders",
            tags="TagA",
            keys=keys,
            store_host="10.0.0.1:10911",
            body_length=5,
            cost_ms=3,
            message_type="Normal_Msg",
            offset_msg_id="OFF",
            is_success=True,
            request_id="REQ",
            retry_times=0,
            context_code=0,
        )
    )


TRACES = {
    "of a producer": record("ORDER-1"),
    "of a consumer": record("ORDER-1", TraceType.SUB_BEFORE)
    + record("ORDER-1", TraceType.SUB_AFTER),
    "compressed": gzip.compress(record("ORDER-1")),
    "with keys in Chinese": record("订单 ORDER-1 已支付"),
    "with a last record that is cut": record("ORDER-1") * 2 + record("ORDER-1")[:30],
    "cut in its only record": record("ORDER-1")[:80],
    "of no keys": record(""),
}
"""Trace messages that can be searched: those of ORDER-1 but for the last."""
UNREADABLE = record("订单")[: record("订单").index("订".encode()) + 1]
"""A trace message that is cut within a character: not text, and no record."""
