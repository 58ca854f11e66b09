"""Messages on their way to consumers: pulls that wait, delays, timers, transactions."""
