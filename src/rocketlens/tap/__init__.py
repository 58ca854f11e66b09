"""Follows brokers as replicas do, and keeps copies of their stores for longer than they do."""
