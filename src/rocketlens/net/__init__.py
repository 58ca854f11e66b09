"""The protocol on real sockets, with asyncio: channels, a server, a pool of client connections.

=============  ====================================================================
module         what
=============  ====================================================================
channel        one connection: requests in, answers out, both ways, with back-pressure
channel_group  state that the channels of one server or client share: bounds and the sweep
server         listens, accepts, TLS on the same port, stops gracefully
pool           calls by address: one connection each, pipelined, dialled when needed
tls            contexts for both ends
event_loop     uvloop where it is installed
sync           a thread with an event loop, for callers without one
secret_file    files with one secret each, for both ends
=============  ====================================================================

All state is of one event loop; nothing here may be called from another thread, ``sync`` apart.
"""
