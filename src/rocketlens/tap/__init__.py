"""Follows brokers like slaves do, and keeps copies of their stores for longer."""
