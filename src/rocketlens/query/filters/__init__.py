"""Message filters: the filter language, patterns, contents."""
