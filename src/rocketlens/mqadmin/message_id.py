"""decodeMessageId: what a unique key says of the producer that made it.

RocketMQ 4.9 and 5.5 still have the command's class, but no longer know its name.
"""

import time

from rocketlens.model.message_id import UniqueKey, pack_address
from rocketlens.mqadmin.tool import Call
from rocketlens.terminal.times import time_text


async def decode(call: Call) -> None:
    """Print address and time; the real tool ends no line.

    :raises BadInput: when it is no unique key.
    """
    call.print(decoded(call.given.required("i"), time.time_ns() // 1_000_000))


def decoded(msg_id: str, now_ms: int) -> str:
    """Give the text for an id at a time.

    :raises BadInput: when it is no unique key.
    """
    key = UniqueKey.decode(msg_id)
    address = key.address
    if ":" in address:
        address = pack_address(address).hex(":", 2)
    made = time_text(key.nearly_time_ms(now_ms, None))
    return f"ip={address}date={made.replace(' ', '#').replace('.', ':')}"
