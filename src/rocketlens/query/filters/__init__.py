"""Which messages match: the filter language, patterns, contents."""
