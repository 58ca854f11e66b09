"""Writes index files."""
