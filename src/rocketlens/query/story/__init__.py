"""The story of one message."""
