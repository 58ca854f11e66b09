"""Frozen values: what a message, an id, a property string and an answer are."""
