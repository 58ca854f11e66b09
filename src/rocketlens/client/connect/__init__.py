"""How clients reach a cluster: name servers, routes, connections, namespaces."""
