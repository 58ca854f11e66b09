"""Readers of the commit log."""
