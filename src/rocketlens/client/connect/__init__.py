"""Connections to a cluster: name servers, routes, brokers, namespaces."""
