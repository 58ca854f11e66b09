"""Sends that are handled together."""
