"""One message: found, decoded, compared."""
