"""One file per on-disk format, pure: bytes in, values out, and back.

Nothing in here opens a file, knows the time or starts a thread.
"""
