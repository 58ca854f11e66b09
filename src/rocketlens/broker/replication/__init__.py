"""Slaves of this broker: the log is sent to them, and sends wait for them."""
