"""Consumers, which deliver a group's messages to a listener or return them from `poll`."""
