"""Values as RocketMQ's tool prints them."""
