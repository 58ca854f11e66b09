"""Readers of a store directory. They need no lock and change nothing."""
