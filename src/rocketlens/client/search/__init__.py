"""Finding messages in a cluster: by id, key, position, time and content."""
