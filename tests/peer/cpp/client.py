"""A producer or a push consumer of rocketmq-client-cpp, as tests/peer/foreign_client.py has it.

The package ``rocketmq`` brings that library, compiled, with functions in Python around it. Its
batches are left out: RocketMQ, too, stores one of them as a single message.
"""

import sys

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import MessageModel, _CConsumeStatus, dll

TIMEOUT_MS = 60_000


def show(*words):
    """Print a line as a whole: threads of the library call back."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def numbered(topic, number, how):
    message = Message(topic)
    message.set_tags("AB"[number % 2])
    message.set_keys(f"{topic}-{number}")
    message.set_property("number", str(number))
    message.set_body(str(number))
    if how == "delayed":
        message.set_delay_time_level(1)
    return message


def send(name_server, group, topic, how, count):
    producer = Producer(group, timeout=TIMEOUT_MS)
    producer.set_namesrv_addr(name_server)
    producer.start()
    for number in range(int(count)):
        message = numbered(topic, number, how)
        if how == "oneway":
            producer.send_oneway(message)
            show("sent", number)
        else:
            sent = producer.send_sync(message)
            # The offset message id, and which queue it was, are not among what it returns.
            show("sent", number, f"SEND_{sent.status.name}", sent.msg_id, "-", "-", sent.offset)
    producer.shutdown()


def consume(name_server, group, topic, *how_to):
    expression, how, refused = how_to
    # It counts no deliveries in an orderly queue.
    to_refuse = {refused}
    model = MessageModel.BROADCASTING if how == "broadcasting" else MessageModel.CLUSTERING
    consumer = PushConsumer(group, orderly=how == "orderly", message_model=model)
    consumer.set_namesrv_addr(name_server)

    def take(_, handle):
        message = RecvMessage(handle)
        body, times = message.body.decode(), message.reconsume_times
        if body in to_refuse:
            to_refuse.clear()
            show("refused", body, times)
            return _CConsumeStatus.RECONSUME_LATER.value
        tags, keys = (each.decode() for each in (message.tags, message.keys))
        show("got", body, times, tags, keys)
        return _CConsumeStatus.CONSUME_SUCCESS.value

    # With the package's own `subscribe`, what a listener that fails returns is left to chance.
    ffi_check(dll.Subscribe(consumer._handle, topic.encode(), expression.encode()))
    consumer._register_callback(take)
    consumer.start()
    show("started")
    sys.stdin.read()
    consumer.shutdown()


if __name__ == "__main__":
    name_server, action, *arguments = sys.argv[1:]
    {"send": send, "consume": consume}[action](name_server, *arguments)
