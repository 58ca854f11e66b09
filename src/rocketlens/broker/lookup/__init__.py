"""Look-ups by key, id and tag in a store that is being written."""
