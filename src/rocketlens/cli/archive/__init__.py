"""``rocketlens archive``: keeps messages in Delta tables, with Spark."""
