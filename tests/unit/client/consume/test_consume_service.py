"""What is logged of listeners that fail: enough to mend them, and not a page for each attempt."""

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.consume_service import (
    ConsumeContext,
    ListenerCalls,
    ListenerFailures,
)


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def failures(clock):
    return ListenerFailures("billing", clock)


def charge(messages, context):
    raise ValueError(f"no card for {messages[0]}")


async def charge_later(messages, context):
    await asyncio.sleep(0)
    charge(messages, context)


def refund(messages, context):
    raise KeyError(messages[0])


def raised_by(listener, message="order 1"):
    """Return what a listener raises, called as consumers call it."""

    async def main():
        calls = ListenerCalls(listener, 1, 60.0)
        try:
            await calls.call((message,), ConsumeContext(MessageQueue("T", "b", 0)))
        except (ValueError, KeyError) as error:
            # Consumers call it from our own code, not from a test.
            return error.with_traceback(error.__traceback__.tb_next)
        finally:
            calls.close()

    return asyncio.run(main())


def lines_of(record):
    return logging.Formatter().format(record).splitlines()


@pytest.mark.parametrize("listener", [charge, charge_later])
def test_the_first_failure_has_its_traceback_without_our_frames(failures, caplog, listener):
    failures.add(raised_by(listener), "ID-1")
    (record,) = caplog.records
    lines = lines_of(record)
    assert lines[0] == "group billing: a listener failed at ID-1"
    assert lines[-1] == "ValueError: no card for order 1"
    files = set(re.findall(r'File "([^"]+)"', record.exc_text))
    assert files == {__file__}


def test_the_same_failure_again_is_one_line_with_its_number(failures, caplog):
    for number in range(1, 5):
        failures.add(raised_by(charge, f"order {number}"), f"ID-{number}")
    assert [len(lines_of(record)) > 1 for record in caplog.records] == [True, False, False, False]
    assert re.fullmatch(
        r"group billing: a listener failed at ID-4: ValueError: no card for order 4 "
        rf"\({re.escape(__file__)}:\d+\), 4 times now",
        caplog.records[-1].getMessage(),
    )


def test_another_failure_has_a_traceback_but_not_within_a_minute(failures, clock, caplog):
    failures.add(raised_by(charge), "ID-1")
    failures.add(raised_by(refund), "ID-2")
    clock.now_s += 59
    failures.add(raised_by(refund), "ID-3")
    clock.now_s += 1
    failures.add(raised_by(refund), "ID-4")
    clock.now_s += 120
    failures.add(raised_by(refund), "ID-5")
    failures.add(raised_by(charge), "ID-6")
    has_traceback = [record.exc_info is not None for record in caplog.records]
    assert has_traceback == [True, False, False, True, False, False]
    assert "the first time" in caplog.records[1].getMessage()
    assert "2 times now" in caplog.records[-1].getMessage()


def test_an_error_of_our_own_is_one_line(failures, caplog):
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(limits.__getattribute__, "NO_SUCH_LIMIT").exception()
    failures.add(error, "ID-1")
    (record,) = caplog.records
    assert len(lines_of(record)) == 1
    assert "AttributeError" in record.getMessage()


def test_kinds_of_failures_are_bounded(failures, caplog, monkeypatch):
    monkeypatch.setattr(limits, "MAX_FAILURE_KINDS", 1)
    for listener in (charge, refund, charge):
        failures.add(raised_by(listener), "ID")
    assert len(failures._counts) == 1
    assert "the first time" in caplog.records[-1].getMessage()
