"""What operators ask of a cluster: topics, groups, clients, offsets."""
