"""``tools.yml``, the file with the keys of RocketMQ's own tool."""

import pytest

from rocketlens.errors import BadInput
from rocketlens.mqadmin.run import tools_file_context
from rocketlens.terminal.contexts import Context

SECRET = "k7-very-secret"


def test_the_keys_of_the_tools_file_are_taken(tmp_path, monkeypatch):
    assert tools_file_context() == Context()
    file = tmp_path / "conf" / "tools.yml"
    file.parent.mkdir()
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert tools_file_context() == Context()
    for access_key, secret_key in (
        ("rocketmq2", "12345678"),
        ('"rocketmq2"  # who', "'12345678'"),
        ("'rocketmq2'", '"12345678" # a comment'),
        ("  rocketmq2 ", "12345678 "),
    ):
        file.write_text(f"# as delivered\n\naccessKey: {access_key}\r\nsecretKey: {secret_key}\n")
        file.chmod(0o600)
        assert tools_file_context() == Context(access_key="rocketmq2", secret_key="12345678")
    file.write_text("accessKey: a#b\nsecretKey: 'it''s'\nother: [1]\n")
    assert tools_file_context() == Context(access_key="a#b", secret_key="it's")
    for empty in (
        "",
        "accessKey: a\n",
        "accessKey: a\nsecretKey:\n",
        "accessKey: ''\nsecretKey: b",
    ):
        file.write_text(empty)
        assert tools_file_context() == Context()
    file.write_text(f"accessKey: a\nsecretKey: !{SECRET}")
    with pytest.raises(BadInput, match="line 2 is not supported") as caught:
        tools_file_context()
    assert SECRET not in str(caught.value)


def test_keys_in_the_tools_file_are_texts_or_numbers(tmp_path, monkeypatch):
    file = tmp_path / "conf" / "tools.yml"
    file.parent.mkdir()
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    for wrong in ("yes", "[a]", "1.5"):
        file.write_text(f"accessKey: a\nsecretKey: {wrong}\n")
        file.chmod(0o600)
        with pytest.raises(BadInput, match="secretKey is not text: write it in quotes"):
            tools_file_context()
    for empty in ("- a\n", "a\n"):
        file.write_text(empty)
        assert tools_file_context() == Context()
