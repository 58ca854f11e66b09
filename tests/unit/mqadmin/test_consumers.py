"""Files that consumerStatus writes stay below the working directory.

Groups of which something cannot be learnt are rows, and an error at the end.
"""

import pytest

from rocketlens.mqadmin.consumers import _write_file


@pytest.mark.parametrize(
    ("client_id", "name"),
    [
        ("10.0.0.1@1#2", "10.0.0.1@1#2"),
        ("a@b:c_d-e", "a@b:c_d-e"),
        ("../../x", None),
        (".hidden", None),
        ("a/b", None),
        ("é", None),
        ("a\n", None),
        ("x" * 200, None),
        ("", None),
        ("@", None),
    ],
)
def test_a_client_id_never_leads_elsewhere(tmp_path, client_id, name):
    directory = tmp_path / "1700000000000"
    path = _write_file(directory, client_id, "text é\n")
    assert path.parent == directory
    assert path.read_text(encoding="utf-8") == "text é\n"
    assert [each.name for each in directory.iterdir()] == [path.name]
    assert path.name == name if name else len(path.name) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    # A client that is connected twice is written twice.
    assert _write_file(directory, client_id, "2") == path
    assert path.read_text(encoding="utf-8") == "2"


def test_a_link_is_replaced_and_not_followed(tmp_path):
    directory = tmp_path / "1700000000000"
    directory.mkdir()
    target = tmp_path / "target"
    target.write_text("kept")
    (directory / "c").symlink_to(target)
    _write_file(directory, "c", "new")
    assert target.read_text() == "kept"
    assert (directory / "c").read_text() == "new"


def test_a_group_without_offsets_is_refused_with_rocketmqs_code(mqadmin, rocketmq):
    done = mqadmin("consumerProgress", "-g", "never-seen")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "group never-seen: no broker knows it" in done.err
    everyone = mqadmin("consumerProgress")
    assert everyone.code == 0
    assert everyone.out.startswith("#Group ")
