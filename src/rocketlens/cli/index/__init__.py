"""``rocketlens index``: builds and checks index files, with Spark."""
