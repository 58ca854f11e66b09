"""The state of clusters, stores and archives: brokers, clients, topics, groups, indexing."""
