"""The remoting protocol on sockets, with asyncio: channels, a server, a pool of client connections.

All state belongs to one event loop; only ``sync`` may be called from other threads.
"""
