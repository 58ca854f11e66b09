"""A store directory that is written: by a broker, or by a builder of its index."""
