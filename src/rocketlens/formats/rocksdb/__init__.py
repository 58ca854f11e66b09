"""Keys of the RocksDB databases in which RocketMQ 5 can store queues and configuration."""
