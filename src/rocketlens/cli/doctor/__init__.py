"""``rocketlens doctor``."""
