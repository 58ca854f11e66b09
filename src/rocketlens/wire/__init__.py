"""RocketMQ's remoting protocol without input or output: bytes in, events out, and back.

This room opens no sockets, starts no threads and reads no clock; ``net`` does.
"""
