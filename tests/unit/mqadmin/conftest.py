"""mqadmin's commands, on a cluster of one broker."""

import pytest

from rocketlens.client.send.message import Message


@pytest.fixture
def mqadmin(run, rocketmq, monkeypatch, tmp_path):
    """Give ``mqadmin(command, *words) -> Done``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def ask(command, *words, layout="5.5"):
        where = ("mqadmin", "--layout", layout, command, "-n", rocketmq.name_server)
        return run(*where, *words)

    return ask


@pytest.fixture
def sent(rocketmq):
    """A message of topic T."""
    with rocketmq.producer() as producer:
        message = Message("T", "hello", tags="A", keys=["K1", "K2"], properties={"colour": "red"})
        return producer.send(message)
