"""Access control of a broker: accounts as in RocketMQ 4, or users and policies as in RocketMQ 5."""
