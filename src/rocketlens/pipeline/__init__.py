"""The data pipeline: everything that runs on Spark, and the only room that imports pyspark.

``session`` starts Spark, ``source`` is the ``rocketmq`` data source, ``dispatch`` builds index
files and consume queues from the log, ``verify`` compares the three.
"""
