"""The name server: the registered brokers and their topics."""
