"""Archives: messages in Delta tables, written by jobs and searched without a JVM.

An archive keeps messages, with an index of their keys, after brokers have deleted them.
`rocketlens.archive.tables` describes its tables.
"""
