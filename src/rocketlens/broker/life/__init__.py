"""The life of a broker: service, registration, index process, metrics."""
