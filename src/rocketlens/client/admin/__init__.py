"""Administrative requests to a cluster: topics, groups, clients, offsets."""
