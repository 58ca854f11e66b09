"""Hints at extras name what can really be installed."""

import json
from importlib import metadata
from types import SimpleNamespace

import pytest

from rocketlens.model import installation
from rocketlens.model.installation import install_command, reinstall_command


@pytest.fixture(autouse=True)
def forget():
    installation._requirement.cache_clear()
    yield
    installation._requirement.cache_clear()


def installed_from(monkeypatch, origin):
    text = origin if origin is None or isinstance(origin, str) else json.dumps(origin)
    found = SimpleNamespace(read_text=lambda _: text)
    monkeypatch.setattr(metadata, "distribution", lambda _: found)


def test_a_checkout_is_named_by_its_directory(monkeypatch, tmp_path):
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    origin = {"url": checkout.as_uri(), "dir_info": {}}
    installed_from(monkeypatch, origin)
    assert install_command("sql") == f"pip install '{checkout}[sql]'"


def test_an_editable_checkout_stays_editable(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    installed_from(monkeypatch, {"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    assert install_command("sql") == f"pip install -e '{tmp_path}[sql]'"


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, "rocketlens[sql]"),
        ("no JSON", "rocketlens[sql]"),
        ("[]", "rocketlens[sql]"),
        ({"url": "file:///gone/away", "dir_info": {}}, "rocketlens[sql]"),
        (
            {"url": "file:///w/rocketlens-0.1.0-py3-none-any.whl", "archive_info": {}},
            "rocketlens[sql] @ file:///w/rocketlens-0.1.0-py3-none-any.whl",
        ),
        (
            {"url": "https://git.example/r.git", "vcs_info": {"vcs": "git"}},
            "rocketlens[sql] @ git+https://git.example/r.git",
        ),
    ],
)
def test_a_file_or_a_repository_is_named_as_it_is(monkeypatch, origin, requirement):
    installed_from(monkeypatch, origin)
    assert install_command("sql") == f"pip install '{requirement}'"


def test_a_package_that_is_not_installed_is_named_by_its_name(monkeypatch):
    def missing(_):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("sql") == "pip install 'rocketlens[sql]'"


def test_installing_again_needs_no_index_where_none_was_used(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    installed_from(monkeypatch, {"url": tmp_path.as_uri(), "dir_info": {}})
    assert reinstall_command() == f"pip install --force-reinstall {tmp_path}"
