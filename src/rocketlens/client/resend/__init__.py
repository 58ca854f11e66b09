"""Stored messages that are sent again, as jobs that can be resumed."""
