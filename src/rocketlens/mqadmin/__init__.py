"""``rocketlens mqadmin``: RocketMQ's own tool, with its options and its output."""
