"""The loop that servers run in."""

import sys

from rocketlens.net.event_loop import SWITCH_INTERVAL_S, run


def test_no_thread_keeps_a_servers_loop_from_running_for_long():
    before = sys.getswitchinterval()

    async def main():
        return sys.getswitchinterval()

    try:
        assert abs(run(main()) - SWITCH_INTERVAL_S) < 1e-6
    finally:
        sys.setswitchinterval(before)


class Unprintable:
    """A result whose text must not be made: it could take any amount of memory."""

    def __repr__(self):
        raise AssertionError("a text of the result was made")


def test_a_result_is_given_without_making_a_text_of_it():
    made = Unprintable()

    async def give():
        return made

    before = sys.getswitchinterval()
    try:
        assert run(give()) is made
    finally:
        sys.setswitchinterval(before)
