"""``rocketlens send``."""
