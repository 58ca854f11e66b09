"""Producers: messages, send requests, transactions, traces."""
