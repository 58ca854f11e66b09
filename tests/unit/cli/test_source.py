"""Where ``find`` and ``show`` search."""

from argparse import ArgumentParser
from pathlib import Path

import pytest

from rocketlens.cli.options import add_source
from rocketlens.cli.source import ChosenSource, choose_source
from rocketlens.errors import BadInput


def given(*words):
    parser = ArgumentParser()
    add_source(parser)
    return parser.parse_args(words)


def test_a_store_of_the_environment_is_searched(monkeypatch):
    monkeypatch.setenv("ROCKETLENS_STORE", "/the/store")
    assert choose_source(given()) == ChosenSource(store=Path("/the/store"))


def test_a_name_server_makes_it_a_cluster():
    access = choose_source(given("--namesrv", "127.0.0.1:9876", "--namespace", "shop")).cluster
    assert (access.name_servers, access.namespace) == ("127.0.0.1:9876", "shop")


def test_without_either_the_message_names_both():
    with pytest.raises(BadInput, match=r"--store DIR.*--namesrv ADDR"):
        choose_source(given())
