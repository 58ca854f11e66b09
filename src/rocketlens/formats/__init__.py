"""One module per on-disk format, without input or output: bytes in, values out, and back.

This room opens no files, starts no threads and reads no clock.
"""
