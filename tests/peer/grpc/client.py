"""A producer or a push consumer of rocketmq-python-client, as tests/peer/foreign_client.py has it.

Instead of a name server it is given the gRPC port of a proxy. Delayed messages are due 1 s later.
"""

import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
)

DELAY_S = 30
lock = threading.Lock()


def show(*words):
    """Print a line as a whole: threads of the library call back."""
    with lock:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


def numbered(topic, number, how):
    message = Message()
    message.topic = topic
    message.body = str(number).encode()
    message.tag = "AB"[number % 2]
    message.keys = f"{topic}-{number}"
    message.add_property("number", str(number))
    if how == "delayed":
        message.delivery_timestamp = int(time.time()) + DELAY_S
    return message


def send(proxy, _, topic, how, count):
    producer = Producer(ClientConfiguration(proxy, Credentials()), (topic,))
    producer.startup()
    for number in range(int(count)):
        sent = producer.send(numbered(topic, number, how))
        queue = sent.message_queue.message_queue0().id
        show("sent", number, "SEND_OK", sent.message_id, "-", queue, sent.offset)
    producer.shutdown()


class Listener(MessageListener):
    """Prints what comes; fails once for one body."""

    def __init__(self, refused):
        self.to_refuse = {refused}

    def consume(self, message):
        body, times = message.body.decode(), message.delivery_attempt - 1
        if body in self.to_refuse:
            self.to_refuse.clear()
            show("refused", body, times)
            return ConsumeResult.FAILURE
        show("got", body, times, message.tag, " ".join(message.keys))
        return ConsumeResult.SUCCESS


def consume(proxy, group, topic, expression, _, refused):
    subscription = {topic: FilterExpression(expression)}
    configuration = ClientConfiguration(proxy, Credentials())
    consumer = PushConsumer(configuration, group, Listener(refused), subscription)
    consumer.startup()
    show("started")
    sys.stdin.read()
    consumer.shutdown()


if __name__ == "__main__":
    proxy, action, *arguments = sys.argv[1:]
    {"send": send, "consume": consume}[action](proxy, *arguments)
