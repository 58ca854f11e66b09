"""Consumers: a group's messages, pushed to a listener or polled."""
