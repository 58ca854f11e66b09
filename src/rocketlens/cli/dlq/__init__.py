"""``rocketlens dlq``: dead letters of consumer groups."""
