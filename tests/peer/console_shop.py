"""Orders on a real broker, and groups in this process that remember what they consumed."""

from rocketlens import Message, SyncMQAdmin, SyncProducer, SyncPushConsumer
from rocketlens.client.resend.resend_job import MARKER
from tests.support.patience import PATIENCE_S


class Group:
    """A consumer group with one member in Python; its listener fails for bodies in ``refused``."""

    def __init__(self, name_server, name, topic):
        self.name, self.refused, self.got = name, set(), []
        self.consumer = SyncPushConsumer(name_server, group=name, begin="first")
        self.consumer.subscribe(topic)
        self.consumer.listen(self.listen)

    def listen(self, messages, context):
        self.got += messages
        if any(each.body in self.refused for each in messages):
            # At once among the dead letters.
            context.delay_level = -1
            raise ValueError("as it was told to")

    @property
    def bodies(self):
        return {each.body for each in self.got}

    @property
    def copies(self):
        """The bodies of what was sent again."""
        return {each.body for each in self.got if MARKER in each.properties}

    def __enter__(self):
        self.consumer.start()
        return self

    def __exit__(self, *_):
        self.consumer.close()


def make_topics(name_server, topic, *groups):
    """Make a topic, and what groups retry from: their consumers know its route from their start."""
    with SyncMQAdmin(name_server) as admin:
        admin.create_topic(topic, 2)
        for each in groups:
            admin.create_topic(f"%RETRY%{each}", 1)


def order(topic, number):
    """Return the key of an order: what somebody knows who looks for its message."""
    return f"{topic}-ORDER-{number}"


def send_orders(name_server, topic, numbers):
    """Send orders; return the result of each by its number."""
    with SyncProducer(name_server, send_timeout_s=PATIENCE_S) as producer:
        return {
            number: producer.send(
                Message(topic, str(number), tags="PAY", keys=[order(topic, number), "USER-9"])
            )
            for number in numbers
        }


def copies_in(name_server, topic):
    """Return the bodies of the messages that a topic has because they were sent again."""
    with SyncMQAdmin(name_server) as admin:
        answer = admin.find(None, topic)
    assert answer.complete
    return {each.body for each in answer.messages if MARKER in each.properties}
