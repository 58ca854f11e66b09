"""An archive: messages in Delta tables, written by jobs and found without a JVM.

Its tables are in `rocketlens.archive.tables`. Brokers delete a message after days; an archive keeps
it, with an index of its keys, for as long as its files are there.
"""
