"""What RocketMQ's own classes answered about queues of a group, and files of offsets."""

from pathlib import Path

from rocketlens.client.connect.route import MessageQueue

VECTORS = Path(__file__).with_name("vectors")
VERSIONS = ("4.9.7", "5.5.0")

# Names that sort in Java otherwise than by character: beyond the basic plane before its end.
NAMES = ("broker-a", "broker-b", "Broker-10", "broker-2", "\uff5e", "\U0001f600")
IDS = (
    *(f"10.0.0.{number}@{number * 7 % 10}#x" for number in range(1, 9)),
    *("\uff5e", "\U0001f600", "a", "B"),
)


def hexed(text):
    return text.encode().hex()


def unhexed(word):
    return bytes.fromhex(word).decode()


def questions():
    """Lines for ConsumerJudge.java."""
    for strategy in ("averagely", "circle"):
        for queue_count in (1, 2, 3, 4, 7, 8, 9, 16, 31):
            for id_count in (1, 2, 3, 4, 5, 8, 12):
                queues = [
                    MessageQueue("T\U0001f600" if n % 5 else "T", NAMES[n % len(NAMES)], n * 3 % 17)
                    for n in range(queue_count)
                ]
                named = ",".join(f"{hexed(t)}:{hexed(b)}:{n}" for t, b, n in queues)
                ids = ",".join(map(hexed, IDS[:id_count]))
                yield f"allocate\t{strategy}\t{named}\t{ids}"


def queues_in(word):
    for each in filter(None, word.split(",")):
        topic, broker_name, queue_id = each.split(":")
        yield MessageQueue(unhexed(topic), unhexed(broker_name), int(queue_id))


def vectors_of(version, kind):
    lines = (VECTORS / f"{version}.txt").read_text(encoding="ascii").splitlines()
    return [words[1:] for line in lines if (words := line.split("\t"))[0] == kind]
