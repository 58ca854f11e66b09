"""``rocketlens archive run``: what it is told to archive."""

import pytest

from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tap_note import TapNote


@pytest.fixture(autouse=True)
def without_spark(monkeypatch):
    monkeypatch.setattr("rocketlens.pipeline.session.check_available", lambda: None)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "what to archive? Give --store BROKER=DIR"),
        (("--store", "{store}"), "which broker wrote"),
        (("--store", "a={store}", "-n", "127.0.0.1:1"), "give only one"),
        (("-n", "127.0.0.1:1"), "which topics?"),
    ],
)
def test_what_is_not_clear_is_refused_before_anything_is_made(
    run, golden, tmp_path, options, error
):
    store = golden("5.5.0").store
    filled = [each.format(store=store) for each in options]
    done = run("archive", "run", "--table", tmp_path / "lake", "--once", *filled)
    assert (done.code, error in done.err) == (2, True), done.err
    assert not (tmp_path / "lake").exists()


def test_a_tap_knows_its_broker(tmp_path):
    from rocketlens.cli.archive.archive_run import _named_store

    path = StoreLayout(tmp_path).tap
    path.parent.mkdir(parents=True)
    path.write_bytes(TapNote("broker-b", "127.0.0.1:10911", 0).encode())
    assert _named_store(str(tmp_path)) == ("broker-b", str(tmp_path))
    assert _named_store(f"broker-a={tmp_path}") == ("broker-a", str(tmp_path))
