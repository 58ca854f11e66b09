"""The audit log: one line of JSON for each event, whatever others wrote, or an error."""

import io
import json

import pytest

from rocketlens import limits
from rocketlens.console.login.audit import AuditFailed, AuditLog
from rocketlens.console.login.viewer import Viewer, seen_by
from rocketlens.console.pages import failure_of

AT_NS = 1_700_000_000_123_456_789


def test_a_line_has_who_when_from_where_and_what():
    file = io.StringIO()
    with seen_by(Viewer("li")):
        AuditLog(file, lambda: AT_NS).record("view", address="10.0.0.7", topic="order", offset=7)
    assert json.loads(file.getvalue()) == {
        "time": "2023-11-14T22:13:20.123Z",
        "event": "view",
        "user": "li",
        "address": "10.0.0.7",
        "topic": "order",
        "offset": 7,
    }


def test_another_user_can_be_named_who_is_not_logged_in():
    file = io.StringIO()
    AuditLog(file).record("refused", user="wu")
    assert json.loads(file.getvalue())["user"] == "wu"


@pytest.mark.parametrize("forged", ['x\n{"event":"login"}', "x\r\u2028\u202e\x1b[2J", "\ud800"])
def test_what_others_wrote_stays_in_its_line(forged):
    file = io.StringIO()
    AuditLog(file).record("refused", user=forged, topic=forged)
    (line,) = file.getvalue().splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["user"] == forged


def test_a_long_text_is_cut():
    file = io.StringIO()
    AuditLog(file).record("refused", user="x" * 99_999)
    assert len(file.getvalue()) < limits.MAX_AUDIT_CHARACTERS + 200


def test_a_log_that_cannot_be_written_is_an_error_and_is_reported():
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(28, "No space left on device")

    errors = io.StringIO()
    with pytest.raises(AuditFailed, match="No space left"):
        AuditLog(Full(), errors=errors).record("resend")
    assert "No space left" in errors.getvalue()


def test_a_closed_log_is_an_error():
    file = io.StringIO()
    file.close()
    with pytest.raises(AuditFailed):
        AuditLog(file, errors=io.StringIO()).record("resend")


def test_without_a_file_nothing_is_written():
    AuditLog().record("view")


def test_an_act_that_cannot_be_audited_is_unavailable_wherever_it_fails():
    assert failure_of(AuditFailed("the audit log cannot be written")).status == 503
