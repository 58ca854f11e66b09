"""Reads, builds and checks whole stores in tasks that need no Spark.

A task reads one range of the log or writes one file, and can run in any process.
:mod:`rocketlens.pipeline` runs the tasks on Spark; :func:`rocketlens.read_batches` reads one range
after the other.
"""
