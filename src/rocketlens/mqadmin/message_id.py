"""decodeMessageId: address and time of the producer that created a unique key.

RocketMQ 4.9 and 5.5 still have the command's class, but no longer register its name.
"""

import time

from rocketlens.model.message_id import UniqueKey, pack_address
from rocketlens.mqadmin.tool import Call
from rocketlens.terminal.times import time_text


async def decode(call: Call) -> None:
    """Print address and time, as the real tool without a line end.

    :raises BadInput: when the id is not a unique key.
    """
    call.print(decoded(call.given.required("i"), time.time_ns() // 1_000_000))


def decoded(msg_id: str, now_ms: int) -> str:
    """Return the text for an id at a time.

    :raises BadInput: when it is not a unique key.
    """
    key = UniqueKey.decode(msg_id)
    address = key.address
    if ":" in address:
        address = pack_address(address).hex(":", 2)
    made = time_text(key.nearly_time_ms(now_ms, None))
    return f"ip={address}date={made.replace(' ', '#').replace('.', ':')}"
