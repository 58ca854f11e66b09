"""Blocking clients, for programs without an event loop."""
