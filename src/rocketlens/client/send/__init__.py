"""Producers: messages, requests that send them, transactions, traces."""
