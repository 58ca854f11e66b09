"""Compiled handling of plain sends and batches."""
