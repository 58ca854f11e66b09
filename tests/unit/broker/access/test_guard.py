"""The check before handlers: what is refused, and what the audit log says."""

import logging

import pytest

from rocketlens.broker.access.guard import AUDITED, LARGE_SIGNED_BYTES, LINES_PER_S, Audit, guarded
from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand


class Peer:
    """The address of a connection."""

    address = "10.0.0.7:4321"
    is_open = True


class Rules:
    """Lets through what has a field."""

    def decide(self, command, host):
        assert host == "10.0.0.7"
        refused = Response(16, remark="no\nway")
        return None if "AccessKey" in command.ext_fields else refused


class Clock:
    now_s = 5.0

    def __call__(self):
        return self.now_s


def command(code, user=None, body=b"", **fields):
    signed = fields if user is None else {"AccessKey": user, **fields}
    return RemotingCommand(int(code), ext_fields=signed, body=body)


def test_a_handler_runs_only_if_the_request_is_let_through():
    done = []

    def handler(request, _):
        done.append(request.code)
        return Response()

    audit = Audit()
    handlers = guarded({10: handler}, Rules().decide, audit)
    assert handlers[10](command(10), Peer()).code == 16
    assert done == []
    assert handlers[10](command(10, "app"), Peer()).code == 0
    assert done == [10]
    assert audit.refused == 1


def test_every_code_is_guarded():
    handlers = guarded({}, Rules().decide, Audit())
    assert handlers.keys() == set(map(int, RequestCode))
    for code, handler in handlers.items():
        assert handler(command(code), Peer()).code == 16
        assert handler(command(code, "app"), Peer()).code == 3


@pytest.mark.parametrize("user", ["app", None])
async def test_a_large_body_is_checked_in_a_thread_and_then_handled(user):
    async def slow(request, _):
        return Response(remark=str(len(request.body)))

    large = bytes(LARGE_SIGNED_BYTES + 1)
    for handler in (slow, lambda request, _: Response(remark=str(len(request.body)))):
        handlers = guarded({10: handler, 25: handler}, Rules().decide, Audit())
        for code in (10, 25):
            answer = await handlers[code](command(code, user, large), Peer())
            assert answer.remark == ("no\nway" if user is None else str(len(large)))


def test_the_audit_log_has_lines_of_what_was_refused_and_what_administrators_did(caplog):
    caplog.set_level(logging.INFO, "rocketlens.audit")
    handlers = guarded({}, Rules().decide, Audit(Clock()))
    handlers[10](command(10, topic="a\x1b[2J"), Peer())
    handlers[17](command(17, "admin\n", topic="New"), Peer())
    handlers[10](command(10, "app", topic="Quiet"), Peer())
    assert [record.getMessage() for record in caplog.records] == [
        "refused 10 SEND_MESSAGE topic=a\\x1b[2J of nobody from 10.0.0.7:4321: no\\nway",
        "admitted 17 UPDATE_AND_CREATE_TOPIC topic=New of admin\\n from 10.0.0.7:4321",
    ]
    assert RequestCode.AUTH_LIST_USER in AUDITED


def test_many_refusals_are_counted_instead_of_written(caplog):
    clock = Clock()
    audit = Audit(clock)
    handlers = guarded({}, Rules().decide, audit)
    for _ in range(LINES_PER_S + 5):
        handlers[10](command(10), Peer())
    assert len(caplog.records) == LINES_PER_S
    clock.now_s += 1
    handlers[10](command(10), Peer())
    assert caplog.records[-1].getMessage().endswith("(5 refusals before it are not shown)")
    assert audit.refused == LINES_PER_S + 6
