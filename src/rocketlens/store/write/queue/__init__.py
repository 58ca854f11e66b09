"""Writes consume queues, and recovers them."""
