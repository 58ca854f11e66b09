"""``rocketlens archive run``: Spark writes an archive, from which messages are found."""

import shutil
from contextlib import nullcontext

import pytest

import rocketlens
from rocketlens.cli.index import spark as cli_spark
from rocketlens.main import main


@pytest.fixture
def in_session(spark, monkeypatch):
    """Have commands use the session of the tests."""
    monkeypatch.setattr(cli_spark, "session", lambda *_, **__: nullcontext(spark))


def test_a_store_that_is_archived_by_a_job_is_found_when_it_is_gone(
    in_session, golden, tmp_path, capsys
):
    store, lake = tmp_path / "store", tmp_path / "lake"
    shutil.copytree(golden("5.5.0").store, store)
    command = ["archive", "run", "--table", lake, "--store", f"broker-a={store}", "--once"]
    assert main(list(map(str, command))) == 0
    assert "DefaultCluster/broker-a: batch 1, " in capsys.readouterr().err
    assert main(list(map(str, command))) == 0
    assert "batch" not in capsys.readouterr().err
    with rocketlens.open_store(store) as opened:
        messages = sorted(map(repr, opened.scan()))
    shutil.rmtree(store)
    with rocketlens.open_archive(lake) as archive:
        assert sorted(map(repr, archive.scan())) == messages
