"""Intervals and timeouts of consumers."""

from typing import Final

REBALANCE_S: Final = 20.0
"""Seconds between two rebalances. RocketMQ: 20."""

RETRY_REBALANCE_S: Final = 0.5
"""Seconds before a failed rebalance is retried, doubled up to `REBALANCE_S`. RocketMQ: 20."""

COMMIT_S: Final = 5.0
"""Seconds between two commits of a consumer's offsets. RocketMQ: 5."""

LITE_PULL_HOLD_S: Final = 20.0
"""Seconds for which a broker may hold the pull of a lite pull consumer. RocketMQ: 20."""

PULL_TIMEOUT_S: Final = 30.0
"""Seconds to wait for the answer to a held pull. RocketMQ: 30."""

LOCK_S: Final = 20.0
"""Seconds between two renewals of queue locks. RocketMQ: 20; a broker's lock lasts 60."""

LOCK_LIVE_S: Final = 30.0
"""Seconds for which a consumer relies on a queue lock. RocketMQ: 30."""

ORDERLY_PAUSES_S: Final = (0.01, 1.0, 30.0)
"""Seconds that an ordered queue pauses after a failure: minimum, default, maximum. RocketMQ: the
same (suspendCurrentQueueTimeMillis).
"""

LOCAL_RETRY_S: Final = 5.0
"""Seconds before messages that could not be sent back are consumed again. RocketMQ: 5."""

CONSUME_TIMEOUT_S: Final = 900.0
"""Seconds for a listener call; then its messages are sent back. RocketMQ: 15 minutes."""

CONSUMER_CLOSE_S: Final = 10.0
"""Seconds that `close` waits for listeners. RocketMQ: 0 by default."""

BEGIN_BEFORE_S: Final = 1800.0
"""Seconds before its start at which a consumer begins by default. RocketMQ: 30 minutes."""

ORDERLY_TURN_S: Final = 60.0
"""Seconds for which one ordered queue is consumed before others get a turn. RocketMQ: 60."""
