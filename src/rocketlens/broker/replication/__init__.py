"""Replication to slaves of this broker."""
