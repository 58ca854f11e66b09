"""The headers of a DLedger log's entries."""

import struct

import numpy as np
import pytest

from rocketlens.formats import dledger
from rocketlens.formats.commitlog_record import encode
from rocketlens.formats.compiled import kernels
from tests.support.made_stores import record_of, some_messages


def entry(record, begin, **changes):
    fields = {"magic": 1, "position": begin, "size": 48 + len(record), "length": len(record)}
    fields |= changes
    return (
        struct.pack(
            ">iiqqqiiii",
            *(fields["magic"], fields["size"], 7, 3, fields["position"]),
            *(0, 0, 0, fields["length"]),
        )
        + record
    )


@pytest.mark.parametrize(
    "changes", [{"magic": 2}, {"position": 64}, {"size": 9}, {"length": 0, "size": 48}]
)
def test_a_header_is_known_by_its_own_offset_and_both_its_sizes(changes):
    assert dledger.bytes_before_record(memoryview(entry(b"x" * 20, 65)), 0, 65) == 48
    assert dledger.bytes_before_record(memoryview(entry(b"x" * 20, 65, **changes)), 0, 65) == 0
    assert dledger.bytes_before_record(memoryview(entry(b"x" * 20, 65)[:47]), 0, 65) == 0


def test_the_compiled_walk_steps_over_headers_as_the_other_does():
    content, offsets, base = b"", [], 1 << 40
    for sent in some_messages(50):
        position = base + len(content)
        record, _ = record_of(sent, position + 48, 0)
        offsets.append(position + 48)
        content += entry(encode(record), position)
    end = len(content)
    rest = 4096
    content += struct.pack(">ii", -1, rest) + bytes(rest - 8)
    buffer = np.frombuffer(content, np.uint8)
    rows = np.empty(100, kernels.RECORD_DTYPE)
    found = kernels.scan_records(buffer, base, 0, len(buffer), rows)
    assert rows["physical_offset"][: found.count].tolist() == offsets
    assert (found.next_position, found.reason) == (end, kernels.ScanReason.BLANK)
    # A walk that ends at an entry ends at its record.
    stop = offsets[20] - base - 48
    assert kernels.scan_records(buffer, base, 0, stop, rows).next_position == stop + 48
    assert kernels.walk_to(buffer, base, 0, stop + 1) == (stop + 48, kernels.ScanReason.STOP)


@pytest.mark.parametrize(
    ("content", "index"),
    [
        (b"committedIndex=299\nendIndex=300\n", 299),
        (b"#Tue\r\nendIndex=3\r\ncommittedIndex=0\r\n", 0),
        (b"endIndex=3\n", None),
        (b"committedIndex=-1\n", None),
        (b"", None),
    ],
)
def test_a_checkpoint_says_what_is_committed(content, index):
    assert dledger.committed_index(content) == index
