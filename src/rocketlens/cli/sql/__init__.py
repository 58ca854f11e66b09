"""``rocketlens sql``."""
