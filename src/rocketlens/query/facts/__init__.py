"""Facts about a store: topics, groups, status, consistency."""
