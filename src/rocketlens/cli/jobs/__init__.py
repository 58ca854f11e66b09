"""Commands that take long: index, archive and duplicates, whose work Spark does; job, watch."""
