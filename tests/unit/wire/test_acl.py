import base64
import hmac

import pytest

from rocketlens.wire import acl
from rocketlens.wire.connection import decode_command
from rocketlens.wire.frame import FrameSplitter
from tests.support.wire_samples import all_vectors

FIELDS = {"topic": "t", "queueId": "3"}


@pytest.mark.parametrize(("version", "words"), all_vectors("sign"))
def test_a_request_is_signed_as_the_real_client_signs_it(version, words):
    del version
    access_key, secret_key, sent, signature = words
    command = decode_command(FrameSplitter().feed(bytes.fromhex(sent))[0])
    signed = acl.signed_fields(command.ext_fields, command.body, access_key, secret_key)
    assert signed["Signature"] == signature
    assert signed["AccessKey"] == access_key
    assert acl.verify(signed, command.body, secret_key)


def test_a_changed_value_body_or_secret_is_noticed():
    signed = acl.signed_fields(FIELDS, b"body", "ak", "sk")
    assert acl.verify(signed, b"body", "sk")
    assert not acl.verify(signed | {"queueId": "4"}, b"body", "sk")
    assert not acl.verify(signed | {"more": "4"}, b"body", "sk")
    assert not acl.verify(signed, b"bodies", "sk")
    assert not acl.verify(signed, b"body", "other")
    assert not acl.verify(signed | {"AccessKey": "other"}, b"body", "sk")


def test_a_request_without_a_signature_or_with_an_odd_one_is_not_signed():
    for signature in ({}, {"Signature": ""}, {"Signature": "é\ud800"}):
        assert not acl.verify(FIELDS | {"AccessKey": "ak"} | signature, b"", "sk")


def test_the_flag_that_clients_add_after_signing_may_be_unsigned():
    signed = acl.signed_fields(FIELDS, b"", "ak", "sk") | {"_UNIQUE_KEY_QUERY": "true"}
    assert acl.verify(signed, b"", "sk")
    both = acl.signed_fields(FIELDS | {"_UNIQUE_KEY_QUERY": "true"}, b"", "ak", "sk")
    assert acl.verify(both, b"", "sk")
    assert not acl.verify(signed | {"queueId": "4"}, b"", "sk")


def test_a_security_token_is_signed_with_the_rest():
    signed = acl.signed_fields(FIELDS, b"", "ak", "sk", "token")
    assert signed["SecurityToken"] == "token"
    assert acl.verify(signed, b"", "sk")
    assert not acl.verify(signed | {"SecurityToken": "other"}, b"", "sk")


def test_names_sort_as_java_sorts_them():
    # U+FF61 comes after U+1F600 in UTF-16, and before it by code point.
    fields = {"\uff61": "1", "\U0001f600": "2"}
    assert acl.sign(fields, b"", "sk") == acl.sign({"a": "2", "b": "1"}, b"", "sk")


@pytest.mark.parametrize("secret_key", ["", "s", "k" * 63, "k" * 64, "k" * 65, "é" * 100])
def test_a_signature_is_hmac_sha1_whatever_the_length_of_the_secret(secret_key):
    for body in (b"", b"body", bytes(1000)):
        digest = hmac.digest(secret_key.encode(), b"3t" + body, "sha1")
        assert acl.sign(FIELDS, body, secret_key) == base64.b64encode(digest).decode()
