"""RocketLens."""
