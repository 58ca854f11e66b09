"""Writes files of changes as brokers of RocketLens 0.1 did."""

import json
import zlib


def encode_first(mark):
    """The first line, for the table's file with a mark."""
    return b"rocketlens-changes 1 %d %08x\n" % mark


def encode_change(change):
    """A line for a change."""
    members = {"dataVersion": change.data_version, "put": change.put, "remove": change.remove}
    return _line(members)


def encode_compaction(mark, lines):
    """The line that names another file of the table, which has the first ``lines`` changes."""
    return _line({"table": list(mark), "lines": lines})


def _line(value):
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)
