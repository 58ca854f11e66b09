"""Searches of a cluster: by id, key, position, time and content."""
