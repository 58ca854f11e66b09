"""RocketMQ's remoting protocol without input or output: bytes in, events out, and back.

Nothing in here opens a socket, knows the time or starts a thread; ``net`` does.
"""
