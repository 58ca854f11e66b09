"""Searches: the question in an address, its answer, exports, saved searches."""
