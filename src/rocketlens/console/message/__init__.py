"""One message: looked up and shown."""
