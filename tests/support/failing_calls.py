"""Calls of the system that fail for want of descriptors or memory, whoever makes them.

Below every :class:`~rocketlens.store.disk.Disk`: opens, maps, looks at files, listings, renames and
links of anything in one directory are counted, and some of them fail.
"""

import errno
import io
import mmap
import os
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

PATCHED = ("open", "scandir", "stat", "rename", "replace", "link", "mkdir")


class FailingCalls:
    """Counts calls below ``root``; those with a number in ``fails`` fail with ``number``."""

    def __init__(self, root, fails=(), number=errno.EMFILE):
        self.root = str(root)
        self.fails = fails
        self.number = number
        self.calls = 0
        self.failed = []

    def count(self, kind, path):
        """Count one call, and fail if it is its turn."""
        if not isinstance(path, str | os.PathLike) or not os.fspath(path).startswith(self.root):
            return
        self.calls += 1
        if self.calls in self.fails:
            self.failed.append((self.calls, kind, os.fspath(path)))
            raise OSError(self.number, os.strerror(self.number), os.fspath(path))

    @contextmanager
    def counted(self):
        """Count, and fail, while this is entered."""
        before = {name: getattr(os, name) for name in PATCHED}

        def counting(name):
            def call(path, *arguments, **named):
                self.count(name, path)
                return before[name](path, *arguments, **named)

            return call

        whole_open, whole_map, failing = io.open, mmap.mmap, self

        def open_file(path, *arguments, **named):
            failing.count("io.open", path)
            return whole_open(path, *arguments, **named)

        class Mapping(metaclass=_LikeMmap):
            def __new__(cls, descriptor, *arguments, **named):
                failing.count("mmap", Path(f"/proc/self/fd/{descriptor}").readlink())
                return whole_map(descriptor, *arguments, **named)

        with (
            mock.patch.multiple(os, **{name: counting(name) for name in before}),
            mock.patch.object(io, "open", open_file),
            mock.patch.object(mmap, "mmap", Mapping),
        ):
            yield self


class _LikeMmap(type):
    """Has what ``mmap.mmap`` made pass for what took its place."""

    def __instancecheck__(cls, instance):
        return type(instance).__name__ == "mmap"


def storms(count, width, step):
    """The numbers of calls that fail together: ``width`` of them, from each ``step``-th on."""
    return [range(first, first + width) for first in range(1, count + 1, step)]
