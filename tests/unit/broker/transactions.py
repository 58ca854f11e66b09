"""Half messages, and their ends."""

from rocketlens.model import properties as props
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import properties_of

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
MARKS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


async def send_half(world, number=0, **named):
    sent = properties_of(
        UNIQ_KEY=f"{number:032X}", TRAN_MSG="true", PGROUP="producers", KEYS=f"k{number}", **named
    )
    answer = await world.send(body=b"%d" % number, e=2, f=4, properties=sent)
    return {
        "producerGroup": "producers",
        "tranStateTableOffset": answer.ext_fields["queueOffset"],
        "commitLogOffset": int(answer.ext_fields["msgId"][16:], 16),
        "commitOrRollback": COMMIT,
        "transactionId": answer.ext_fields["transactionId"],
    }


async def end(world, fields, **changes):
    return await world.call(RequestCode.END_TRANSACTION, **(fields | changes))


def half_properties(record):
    return props.parse(record.properties.decode())


async def end_many(world, count, first=0):
    """Send and commit transactions; gives what each was ended with."""
    ended = []
    for number in range(first, first + count):
        fields = await send_half(world, number)
        assert (await end(world, fields)).code == 0
        ended.append(fields)
    return ended
