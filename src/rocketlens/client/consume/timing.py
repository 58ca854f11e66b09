"""When a consumer does what: RocketMQ's own times."""

from typing import Final

REBALANCE_S: Final = 20.0
"""Seconds between two looks at which queues are a consumer's. RocketMQ: 20."""

RETRY_REBALANCE_S: Final = 0.5
"""Seconds until the next look after one that failed, doubled up to `REBALANCE_S`. RocketMQ: 20."""

COMMIT_S: Final = 5.0
"""Seconds between two commits of a consumer's offsets. RocketMQ: 5."""

LITE_PULL_HOLD_S: Final = 20.0
"""Seconds for which a broker may hold the pull of a lite pull consumer. RocketMQ: 20."""

PULL_TIMEOUT_S: Final = 30.0
"""Seconds to wait for the answer to a pull that is held. RocketMQ: 30."""

LOCK_S: Final = 20.0
"""Seconds between two renewals of the locks of ordered queues. RocketMQ: 20; a broker's last 60."""

LOCK_LIVE_S: Final = 30.0
"""Seconds for which a consumer believes that a queue is locked for it. RocketMQ: 30."""

ORDERLY_PAUSES_S: Final = (0.01, 1.0, 30.0)
"""Seconds for which an ordered queue rests after a failure: at least, unless told, at most.

RocketMQ: the same (suspendCurrentQueueTimeMillis).
"""

LOCAL_RETRY_S: Final = 5.0
"""Seconds until messages that could not be given back are consumed again. RocketMQ: 5."""

CONSUME_TIMEOUT_S: Final = 900.0
"""Seconds that a listener may take, then the message is given back. RocketMQ: 15 minutes."""

CONSUMER_CLOSE_S: Final = 10.0
"""Seconds that a consumer which is closed waits for its listeners. RocketMQ: 0, unless told."""

BEGIN_BEFORE_S: Final = 1800.0
"""How long before its start a consumer begins by default, if it begins at a time. RocketMQ: 30 min.
"""

ORDERLY_TURN_S: Final = 60.0
"""Seconds for which one ordered queue is consumed before others have their turn. RocketMQ: 60."""
