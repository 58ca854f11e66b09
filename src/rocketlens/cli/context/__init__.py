"""``rocketlens context``: named contexts."""
