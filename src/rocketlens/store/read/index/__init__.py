"""Readers of index files, and the index in memory for the rest of the log."""
