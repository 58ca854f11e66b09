"""Blocking clients have what the async ones have, with the same arguments."""

import inspect

import pytest

import rocketlens
from rocketlens.client.blocking.blocking_client import blocking_doc

CLIENTS = {
    rocketlens.SyncMQAdmin: rocketlens.MQAdmin,
    rocketlens.SyncProducer: rocketlens.Producer,
    rocketlens.SyncTransactionProducer: rocketlens.TransactionProducer,
    rocketlens.SyncPushConsumer: rocketlens.PushConsumer,
    rocketlens.SyncLitePullConsumer: rocketlens.LitePullConsumer,
}
NOT_BLOCKING = {
    *("members_changed", "reset_offsets", "offsets_of", "running_info", "consume_directly"),
    *("message_model", "concurrency", "batch", "auto_commit"),
    # A blocking admin or producer starts when it is made.
    "start",
}
BY_HAND = {"view_message", "start", "close"}


def public(client):
    return {name for name in dir(client) if not name.startswith("_")}


PAIRS = [
    pytest.param(blocking, plain, name, id=f"{blocking.__name__}.{name}")
    for blocking, plain in CLIENTS.items()
    for name in sorted(public(blocking) & public(plain))
    if callable(getattr(plain, name))
]


@pytest.mark.parametrize(("blocking", "plain"), CLIENTS.items())
def test_a_blocking_client_has_each_method_of_the_async_one(blocking, plain):
    assert public(plain) - public(blocking) <= NOT_BLOCKING
    assert public(blocking) - public(plain) <= {"send_async"}
    assert inspect.signature(blocking) == inspect.signature(plain)


@pytest.mark.parametrize(("blocking", "plain", "name"), PAIRS)
def test_a_blocking_method_has_the_arguments_of_the_async_one(blocking, plain, name):
    ours = inspect.signature(getattr(blocking, name)).parameters
    theirs = inspect.signature(getattr(plain, name)).parameters
    assert list(ours.values()) == list(theirs.values())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda admin: admin.create_topic("T", perms=6), "create_topic.*'perms'"),
        (lambda admin: admin.tail("T", folow=True), "tail.*'folow'.*did you mean follow"),
        (lambda admin: admin.scan("T", tags="A"), "scan.*'tags'.*did you mean tag"),
    ],
)
def test_a_wrong_argument_of_a_method_is_refused_under_its_name(call, text):
    with rocketlens.SyncMQAdmin("127.0.0.1:1") as admin, pytest.raises(TypeError, match=text):
        call(admin)


def test_a_blocking_method_returns_what_is_iterated_over_without_an_event_loop():
    assert inspect.signature(rocketlens.SyncMQAdmin.tail).return_annotation.__name__ == (
        "SyncTopicTail"
    )


@pytest.mark.parametrize(("blocking", "plain", "name"), PAIRS)
def test_a_blocking_method_has_the_docstring_of_the_async_one(blocking, plain, name):
    if name not in BY_HAND:
        theirs = blocking_doc(inspect.getdoc(getattr(plain, name)))
        assert inspect.getdoc(getattr(blocking, name)) == theirs


def test_the_docstring_of_a_blocking_method_speaks_of_blocking_calls():
    text = inspect.getdoc(rocketlens.SyncMQAdmin.tail)
    assert "``on_event`` runs in the client's thread: it must not block.\n\nThe iteration" in text
    assert "async" not in text
