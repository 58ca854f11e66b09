"""A store directory on disk: its files, its lock, and what can be read from them.

Readers need no lock and change nothing. ``fs`` and ``lock`` are the only users of os, mmap and
fcntl in this package.
"""
