"""Commands whose work Spark does: index, archive, duplicates."""
