"""Writers of a store directory: the broker, and the builder of the index."""
