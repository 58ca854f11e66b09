"""Stores that real brokers laid out in different ways: see tests/golden/README.md."""

import json

import rocketlens


class Layout:
    """A copy of a broker's directory, and what was sent to it."""

    def __init__(self, path):
        self.path = path
        self.store = path / "store"
        lines = (path / "sent.jsonl").read_text(encoding="utf-8").splitlines()
        self.sent = [json.loads(line) for line in lines]
        self.conf = path / "conf" / "broker.conf"
        self.conf.parent.mkdir()
        text = (path / "broker.conf").read_text(encoding="utf-8")
        self.conf.write_text(text.replace("/data/broker", str(path)), encoding="utf-8")
        (path / "broker.conf").unlink()

    def open(self):
        return rocketlens.open_store(self.store)

    def log_files(self):
        names = ("store/commitlog", "store/dledger-n0/data", "log", "disk1", "disk2")
        files = [path for name in names for path in (self.path / name).glob("0*")]
        return sorted(files, key=lambda path: path.name)


def ids(answer):
    return [message.offset_msg_id for message in answer.messages]
