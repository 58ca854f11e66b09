"""Who may ask a broker for what: accounts as in RocketMQ 4, or users and policies as in 5."""
