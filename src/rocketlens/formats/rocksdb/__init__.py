"""Keys of the databases in which RocketMQ 5 can have queues and configuration (RocksDB)."""
