"""Filters of messages: the filter language, patterns, contents."""
