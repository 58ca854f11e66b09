"""A broker from its start to its end: service, registration, index process, metrics."""
