"""The console over a real cluster in a real browser: an order is sent to one group again."""

import os
import subprocess
import sys

import pytest

from rocketlens import SyncMQAdmin
from tests.peer.console_shop import Group, make_topics, order, send_orders
from tests.peer.rocketmq_peer import VERSIONS, wait_until
from tests.support.patience import PATIENCE_S

TOPIC, GROUP = "ConsoleBrowsed", "g_console_browsed"
KEYBOARD, MOUSE = range(2)


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request, real_broker):
    return real_broker(request.param)


@pytest.fixture(scope="module")
def group(chromium, broker):
    """Return a group that has consumed two orders."""
    make_topics(broker.namesrv_address, TOPIC, GROUP)
    send_orders(broker.namesrv_address, TOPIC, (KEYBOARD, MOUSE))
    with Group(broker.namesrv_address, GROUP, TOPIC) as group:
        wait_until(lambda: group.bodies == {b"0", b"1"}, broker.broker, PATIENCE_S)
        with SyncMQAdmin(broker.namesrv_address) as admin:
            keys = [order(TOPIC, number) for number in (KEYBOARD, MOUSE)]
            # The broker indexes a message after its consumers can have it.
            wait_until(
                lambda: all(admin.find(key, TOPIC).messages for key in keys),
                broker.broker,
                PATIENCE_S,
            )
        yield group


@pytest.fixture(scope="module")
def console(group, broker, tmp_path_factory):
    """Give the address of a console over the cluster."""
    words = [sys.executable, "-m", "rocketlens", "console", "--namesrv", broker.namesrv_address]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}
    with subprocess.Popen(
        [*words, "--bind", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process.stdout.readline().split()[1].rstrip("/,")
        finally:
            process.terminate()


def wait_for_copy(group, broker, number):
    wait_until(lambda: str(number).encode() in group.copies, broker.broker, PATIENCE_S)


def test_an_order_is_found_and_sent_to_its_group_by_keyboard(open_page, group, broker):
    page = open_page("/", language="zh")
    page.keyboard.press("/")
    page.keyboard.type(order(TOPIC, KEYBOARD))
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?*")
    page.locator("tr[data-path]").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/m/**")
    page.locator("a[data-key=r]").wait_for()
    page.keyboard.press("r")
    page.wait_for_url("**/resend?to=group")
    page.keyboard.press("/")
    page.keyboard.type(GROUP)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**group={GROUP}**")
    page.get_by_text(f"只有消费组 {GROUP}").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("工单 7")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    page.locator("#job strong", has_text="已发送 1，失败 0，结果未知 0，剩余 0").wait_for()
    wait_for_copy(group, broker, KEYBOARD)


def test_an_order_is_pasted_and_sent_to_its_group_by_mouse(open_page, group, broker):
    page = open_page("/")
    page.evaluate("text => navigator.clipboard.writeText(text)", order(TOPIC, MOUSE))
    box = page.locator("input[name=q]").first
    box.click()
    page.keyboard.press("Control+V")
    box.locator("xpath=ancestor::form").get_by_role("button", name="Search", exact=True).click()
    page.locator("tr[data-path] td.time a").click()
    page.wait_for_url("**/m/**")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=GROUP))
    row.get_by_role("link", name="Send again to one group").click()
    page.get_by_text(f"only group {GROUP}").wait_for()
    page.locator("input[name=reason]").fill("ticket 7")
    page.get_by_role("button", name="Send again", exact=True).click()
    page.wait_for_url("**/jobs/*")
    page.locator("#job strong", has_text="1 sent, 0 failed, 0 unknown, 0 left").wait_for()
    wait_for_copy(group, broker, MOUSE)
