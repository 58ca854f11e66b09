"""The configuration of servers, and the program that builds the index beside a broker."""

from argparse import Namespace

import pytest

from rocketlens.broker.config import parse_settings
from rocketlens.cli.servers import configuration_text, index_command
from rocketlens.errors import BadInput
from rocketlens.limits import MAX_SERVER_CONFIG_BYTES
from rocketlens.main import build_parser


def test_no_file_is_an_empty_configuration():
    assert configuration_text(None) == ""


def test_a_configuration_is_read_without_its_byte_order_mark(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_bytes(b"\xef\xbb\xbfbrokerName=\xc3\xa9")
    assert configuration_text(str(file)) == "brokerName=é"


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xff=1", "not UTF-8"), (bytes(MAX_SERVER_CONFIG_BYTES + 1), "not a configuration file")],
)
def test_a_file_that_is_not_a_configuration_is_refused(tmp_path, content, said):
    file = tmp_path / "broker.conf"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=said):
        configuration_text(str(file))


def test_a_path_with_a_zero_character_is_refused():
    with pytest.raises(BadInput, match="--config has a zero character"):
        configuration_text("a\0b")


def test_the_index_builder_is_started_with_options_that_it_knows(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.pipeline.session.check_available", lambda: None)
    settings = parse_settings(f"storePathRootDir={tmp_path}\nmaxIndexNum=700\n")
    arguments = Namespace(index_builder="auto", master="local[1]")
    _, _, _, module, *words = index_command(arguments, settings)
    follow = build_parser(words).parse_args(words)
    assert module == "rocketlens.main"
    assert (follow.store, follow.entries, follow.master) == (str(tmp_path), 700, "local[1]")
    assert follow.until_stdin_ends


def test_a_broker_that_builds_its_index_itself_starts_no_program(tmp_path):
    settings = parse_settings(f"storePathRootDir={tmp_path}\n")
    assert index_command(Namespace(index_builder="inline", master="local[*]"), settings) == ()
