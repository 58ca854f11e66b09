"""The state of clusters and stores: brokers, clients, topics, pipeline."""
