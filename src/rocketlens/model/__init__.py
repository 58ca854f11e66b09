"""Frozen values: messages, message ids, properties, topics, groups, answers."""
