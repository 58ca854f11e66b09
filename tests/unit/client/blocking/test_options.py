"""The keyword arguments of blocking clients are those of the async ones."""

import inspect

import pytest

import rocketlens
from rocketlens.client.blocking import options

CLASSES = {
    rocketlens.MQAdmin: options.AdminOptions,
    rocketlens.Producer: options.ProducerOptions,
    rocketlens.PushConsumer: options.PushConsumerOptions,
    rocketlens.LitePullConsumer: options.LitePullConsumerOptions,
}
METHODS = {
    rocketlens.MQAdmin.create_topic: options.CreateTopicOptions,
    rocketlens.MQAdmin.create_and_update_subscription_group: options.GroupBrokersOptions,
    rocketlens.MQAdmin.delete_subscription_group: options.DeleteGroupOptions,
    rocketlens.MQAdmin.scan: options.ReadOptions,
    rocketlens.MQAdmin.tail: options.FollowOptions,
}


def keywords(function):
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize("declared", [*CLASSES, *METHODS], ids=lambda one: one.__qualname__)
def test_every_keyword_argument_is_known_to_type_checkers(declared):
    known = {**CLASSES, **METHODS}[declared]
    found = keywords(declared)
    assert set(known.__annotations__) == set(found)
    assert set(known.__required_keys__) == {
        name for name, each in found.items() if each.default is each.empty
    }


def test_a_transaction_producer_has_those_of_a_producer_and_its_own():
    own = keywords(rocketlens.TransactionProducer)
    producer = set(options.ProducerOptions.__annotations__) - {"handlers"}
    assert set(options.TransactionProducerOptions.__annotations__) == producer | set(own)


SYNC = {
    rocketlens.SyncMQAdmin: options.AdminOptions,
    rocketlens.SyncProducer: options.ProducerOptions,
    rocketlens.SyncTransactionProducer: options.TransactionProducerOptions,
    rocketlens.SyncPushConsumer: options.PushConsumerOptions,
    rocketlens.SyncLitePullConsumer: options.LitePullConsumerOptions,
    rocketlens.SyncMQAdmin.create_topic: options.CreateTopicOptions,
    rocketlens.SyncMQAdmin.create_and_update_subscription_group: options.GroupBrokersOptions,
    rocketlens.SyncMQAdmin.delete_subscription_group: options.DeleteGroupOptions,
    rocketlens.SyncMQAdmin.scan: options.ReadOptions,
    rocketlens.SyncMQAdmin.tail: options.FollowOptions,
}


@pytest.mark.parametrize("declared", SYNC, ids=lambda one: one.__qualname__)
def test_help_of_a_blocking_client_shows_each_keyword_argument_with_its_default(declared):
    shown = keywords(declared)
    assert set(shown) == set(SYNC[declared].__annotations__)
    kinds = {each.kind for each in inspect.signature(declared).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


def test_a_blocking_method_returns_what_it_returned_before():
    assert inspect.signature(rocketlens.SyncMQAdmin.tail).return_annotation == "SyncTopicTail"
