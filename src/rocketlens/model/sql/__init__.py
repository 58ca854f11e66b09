"""RocketMQ's SQL92 dialect."""
