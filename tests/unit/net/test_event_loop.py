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
