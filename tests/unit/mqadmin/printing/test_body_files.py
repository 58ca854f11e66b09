"""Files with bodies and statuses are written where they should be, and never through a link.

A message in one line, as RocketMQ's tools print it.
What is inferred from what consumers say they are doing.
"""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rocketlens import open_store
from rocketlens.errors import BadInput
from rocketlens.mqadmin.consumers import _write_file
from rocketlens.mqadmin.printing import body_files
from rocketlens.mqadmin.printing.body_files import bodies_directory, safe_name, write_body
from rocketlens.mqadmin.printing.form import Form, message_pieces
from rocketlens.mqadmin.printing.running_info import (
    START_TIMESTAMP,
    is_push,
    is_subscribed_alike,
    stuck_queues_text,
)
from tests.support.fake_cluster import T0
from tests.support.group_world import running_info, subscription
from tests.support.patched import change_for
from tests.unit.mqadmin.printed_by_rocketmq import bounds, form_of, printed


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


def test_a_message_in_print_msg_is_what_the_real_tool_prints(golden):
    expected = printed(golden, "5.5.0", "printMsg").splitlines()[1]
    with open_store(golden("5.5.0").store) as store:
        message = store.query_by_queue_offset("T22", 1, 0)
    message = replace(message, properties={**message.properties, **bounds(expected)})
    detail = "".join(message_pieces(form_of("5.5.0"), "broker-a", message))
    assert f"MSGID: {message.msg_id} {detail} BODY: hello" == expected


LATER = T0 + 600_000
NEW, OLD = Form(), Form(is_5=False)


def test_subscriptions_differ_by_topic_and_expression_once_the_first_runs_for_two_minutes():
    first = running_info("g-push")
    other = replace(first, subscriptions=(subscription("T", "TagA"),))
    none = replace(first, subscriptions=())
    assert is_subscribed_alike(NEW, {"a": first, "b": first}, LATER)
    assert not is_subscribed_alike(NEW, {"a": first, "b": other}, LATER)
    assert is_subscribed_alike(NEW, {"a": first, "b": other}, T0 + 120_000)
    # Only 4.9 takes a client that subscribes to nothing for one that differs.
    assert is_subscribed_alike(NEW, {"a": none}, LATER)
    assert not is_subscribed_alike(OLD, {"a": none}, LATER)
    pulls = running_info("g-pull")
    assert is_subscribed_alike(NEW, {"a": pulls, "b": other}, LATER)
    unsaid = replace(first, properties={**first.properties, START_TIMESTAMP: "soon"})
    assert is_subscribed_alike(NEW, {"a": unsaid, "b": other}, LATER)


def test_queues_that_seem_stuck_are_named():
    text = stuck_queues_text(NEW, "c", running_info("g-push"), LATER)
    assert [line.split("queueId=")[1] for line in text.splitlines()] == [
        "1] can't consume for a while, maybe blocked, 599998ms",
        "2] can't consume for a while, maybe blocked, 599998ms",
    ]
    orderly = stuck_queues_text(NEW, "c", running_info("g-tag"), LATER)
    assert [line.split("queueId=")[1] for line in orderly.splitlines()] == [
        "0] can't lock for a while, 599997ms",
        "2] unlock 2 times, still failed",
    ]
    assert stuck_queues_text(NEW, "c", running_info("g-pull"), LATER) == ""
    assert stuck_queues_text(NEW, "c", running_info("g-push"), T0 + 1_000) == ""
    assert is_push(running_info("g-push"))
    assert not is_push(running_info("g-pop"))
