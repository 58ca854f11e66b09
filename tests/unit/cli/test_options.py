"""Options that several commands have."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

import pytest

from rocketlens.cli.options import add_store, port_number, positive_number, store_directory
from rocketlens.errors import BadInput


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [(positive_number, "1", 1), (positive_number, "2147483647", 2**31 - 1), (port_number, "0", 0)],
)
def test_a_number_in_its_range_is_taken(kind, text, number):
    assert kind(text) == number


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "x", "٣", "2147483648", "9" * 5000])
def test_what_is_not_a_positive_number_is_refused(text):
    with pytest.raises(ArgumentTypeError, match=r"invalid number .*: expected 1 to 2147483647"):
        positive_number(text)


@pytest.mark.parametrize("text", ["65536", "-1", "x", "9" * 5000, "0" * 30 + "99999"])
def test_what_is_not_a_port_is_refused(text):
    with pytest.raises(ArgumentTypeError, match=r"invalid port .*: expected 0 to 65535"):
        port_number(text)


def test_an_option_names_the_store_before_the_environment(monkeypatch):
    monkeypatch.setenv("ROCKETLENS_STORE", "/of/the/environment")
    parser = ArgumentParser()
    add_store(parser)
    assert store_directory(parser.parse_args([])) == Path("/of/the/environment")
    assert store_directory(parser.parse_args(["--store", "/given"])) == Path("/given")


def test_without_a_store_the_message_says_how_to_name_one():
    with pytest.raises(BadInput, match=r"--store DIR.*ROCKETLENS_STORE"):
        store_directory(Namespace(store=None))
    with pytest.raises(BadInput, match="zero character"):
        store_directory(Namespace(store="a\0b"))
