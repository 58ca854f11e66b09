"""Each command names the topic, group, queue or broker that is not there, and the nearest one."""

import json
import re

import pytest

from rocketlens import Message, SyncPushConsumer
from rocketlens.testing import cluster
from tests.support.archives import archive_store
from tests.support.made_stores import Sent, make_store

PAYMENTS = r"paymets.*; did you mean payments\?"
TOPIC, GROUP = r"'paymets'; did you mean payments\?", r"biling.*; did you mean billing"
ENDS, NO_QUEUE = r"payments/0 ends at 2", r"no queue payments/9.*: its topic has queues 0 to 3"


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    lake = tmp_path_factory.mktemp("lake")
    sent = [Sent("payments", f"key-{n}", queue_id=n % 4) for n in range(8)]
    made = make_store(lake / "store", sent)
    archive_store(lake, made.path)
    (made.path / "config").mkdir()
    for name, table in (
        ("consumerOffset", {"offsetTable": {"payments@billing": {"0": 2}}}),
        ("subscriptionGroup", {"subscriptionGroupTable": {"billing": {}}}),
    ):
        (made.path / f"config/{name}.json").write_text(json.dumps(table))
    with cluster() as running:
        with running.producer() as producer:
            for number in range(8):
                producer.send(Message("payments", f"{number}", keys=f"key-{number}"))
            producer.send(Message("%DLQ%billing", "dead", keys="key-0"))
        consumer = SyncPushConsumer(running.name_server, group="billing", begin="first")
        consumer.subscribe("payments")
        consumer.listen(lambda *_: None)
        with consumer, running.admin() as admin:
            admin.expect("key-1", "payments", by="in 1h", consumed_by="billing")
        yield {
            "cluster": ("-n", running.name_server),
            "store": ("--store", made.path),
            "archive": ("--archive", lake),
        }


@pytest.mark.parametrize(
    ("command", "names", "said"),
    [
        *((f"{each} paymets/0/1", "cluster store archive", TOPIC) for each in ("find", "show")),
        *((f"{each} payments/0/99", "cluster store archive", ENDS) for each in ("find", "story")),
        *((f"{each} payments/9/0", "cluster store archive", NO_QUEUE) for each in ("find", "show")),
        ("find key-1 -t paymets", "cluster store archive", TOPIC),
        ("find -t paymets --grep x", "cluster store archive", TOPIC),
        ("show key-1 -t paymets", "cluster store archive", TOPIC),
        ("story key-1 -t paymets", "cluster store archive", TOPIC),
        ("story payments/0/1 --group biling", "cluster store", GROUP),
        ("story payments/0/1 --group biling -o json", "cluster store", GROUP),
        ("topics paymets", "cluster store archive", TOPIC),
        ("groups biling", "cluster store", GROUP),
        ("tail paymets", "cluster store", PAYMENTS),
        ("export /nowhere.csv -t paymets", "cluster store archive", TOPIC),
        ("dlq list biling", "cluster", GROUP),
        ("dlq show biling", "cluster", GROUP),
        ("dlq redrive biling", "cluster", GROUP),
        ("resend payments/0/1 --send --reason x --to-group biling", "cluster", GROUP),
        ("resend payments/0/1 --send --reason x --to-topic paymets", "cluster", PAYMENTS),
        ("resend -t paymets --key key-1", "cluster", TOPIC),
    ],
)
def test_what_is_not_there_is_named_with_what_is(run, doors, command, names, said):
    for name in names.split():
        done = run(*command.split(), *doors[name])
        assert done.code or "--group biling" in command, (name, done.out)
        assert re.search(said, done.err + done.out), (name, done.err, done.out)
