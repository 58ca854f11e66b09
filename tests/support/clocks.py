"""Clocks that stand until a test moves them."""


class Clock:
    """A clock of milliseconds."""

    def __init__(self, now_ms=1_700_000_000_000):
        self.now_ms = now_ms

    def __call__(self):
        return self.now_ms


class Seconds:
    """A clock of seconds."""

    def __init__(self, now_s=1000.0):
        self.now_s = now_s

    def __call__(self):
        return self.now_s
