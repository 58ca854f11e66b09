"""Stores and a Spark session for commands."""

import shutil

import pytest


@pytest.fixture
def own_session(spark, monkeypatch):
    """Commands use the session of the tests, and leave it open."""
    monkeypatch.setattr("rocketlens.cli.jobs.spark._running", [spark.sparkContext])


@pytest.fixture
def copy(golden, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(golden("5.5.0").store, store)
    return store
