"""Reads, builds and checks whole stores in ranges of the log, and needs no Spark for it.

Here are the tasks: each reads one range of the log, or writes one file, and could run in any
process. :mod:`rocketlens.pipeline` runs them on Spark; :func:`rocketlens.read_batches` runs the
reading ones one after another.
"""
