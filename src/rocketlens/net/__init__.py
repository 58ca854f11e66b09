"""The protocol on real sockets, with asyncio: channels, a server, a pool of client connections.

All state is of one event loop; only ``sync`` may be called from another thread.
"""
