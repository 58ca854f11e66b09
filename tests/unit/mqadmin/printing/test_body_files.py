"""Bodies are written where only their user can read them, and never through a link."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import BadInput
from rocketlens.mqadmin.printing import body_files
from rocketlens.mqadmin.printing.body_files import bodies_directory, safe_name, write_body
from tests.support.patched import change_for


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_directory_and_file_are_the_users_alone(tmp_path):
    path = write_body(tmp_path / "bodies", "7F00", b"hello")
    assert path == tmp_path / "bodies" / "7F00"
    assert path.read_bytes() == b"hello"
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)


def test_a_directory_that_others_could_read_is_made_private(tmp_path):
    tmp_path.chmod(0o755)
    write_body(tmp_path, "7F00", b"")
    assert mode_of(tmp_path) == 0o700


def test_a_planted_link_is_replaced_and_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("mine")
    directory = tmp_path / "bodies"
    directory.mkdir()
    (directory / "7F00").symlink_to(target)
    path = write_body(directory, "7F00", b"body")
    assert target.read_text() == "mine"
    assert not path.is_symlink()
    assert path.read_bytes() == b"body"


def test_a_directory_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "bodies").symlink_to(tmp_path)
    with pytest.raises(BadInput, match="is not a directory, or is a link"):
        write_body(tmp_path / "bodies", "7F00", b"")


def test_a_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    change_for(monkeypatch, body_files, "os", geteuid=lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(BadInput, match="another user"):
        write_body(tmp_path, "7F00", b"")


@given(st.text() | st.sampled_from(["../../etc/passwd", "/abs", "..", ".", "", "a\0b", "-rf"]))
def test_no_id_leads_out_of_the_directory(msg_id):
    name = safe_name(msg_id)
    assert name.isascii()
    assert name.replace("-", "").replace("_", "").isalnum()
    assert not name.startswith("-")
    assert len(name) <= 100


def test_several_messages_of_one_id_have_files_of_their_own(tmp_path):
    paths = [write_body(tmp_path, "7F00", bytes([n]), n) for n in range(3)]
    assert [path.name for path in paths] == ["7F00", "7F00_1", "7F00_2"]


def test_the_directory_is_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert bodies_directory() == tmp_path / "rocketlens" / "msgbodys"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert bodies_directory().is_absolute()
