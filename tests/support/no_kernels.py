"""A machine on which compiled code cannot be loaded, whatever this process loaded before."""

import sys

from rocketlens.broker.delivery.pull_records import PullRecords
from rocketlens.formats import compiled
from rocketlens.store.read.index.tail import Tail
from rocketlens.store.read.kernel_loader import KERNELS
from rocketlens.store.read.log.scan import LogWalk


def refuse_kernels(monkeypatch):
    """Make each import of kernels fail until the end of the test."""
    for name in ("kernels", "send", "send_parse", "request_names"):
        monkeypatch.setitem(sys.modules, f"{compiled.__name__}.{name}", None)
        monkeypatch.delattr(compiled, name, raising=False)
    monkeypatch.delitem(sys.modules, "rocketlens.broker.sends.send_runs", raising=False)
    for each in (LogWalk, Tail, PullRecords):
        monkeypatch.setattr(each, "is_compiled", False)
    monkeypatch.setattr(KERNELS, "is_refused", False)
