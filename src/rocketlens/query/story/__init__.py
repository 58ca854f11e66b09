"""The story of a message."""
