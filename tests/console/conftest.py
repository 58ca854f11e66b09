"""A console process over a live system and a store of RocketMQ's own, and a real browser."""

import os
import shutil
import subprocess
import sys

import pytest

from rocketlens import testing
from rocketlens.client.send.message import Message
from tests.support.console_users import HASH
from tests.support.patience import PATIENCE_S

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ORDERS = 250
"""More than two pages."""


@pytest.fixture(scope="session")
def chromium():
    """Give the path of a Chromium, or skip."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(
            f"no Chromium found ({', '.join(BROWSERS)}): NO PAGE OF THE CONSOLE WAS TRIED IN A "
            "BROWSER; install one, as by apt-get install chromium"
        )
    return found


@pytest.fixture(scope="module")
def console(chromium, golden, tmp_path_factory):
    """Give the address of a console over a cluster, ``live``, and a golden store, ``store``."""
    with testing.cluster() as running:
        with running.producer() as producer:
            for number in range(ORDERS):
                body = f'{{"order": "ORDER-{number}", "amount": {number}.50, "name": "李雷"}}'
                producer.send(
                    Message(
                        "order-paid",
                        body.encode(),
                        tags="PAY" if number % 3 else "REFUND",
                        keys=[f"ORDER-{number}", f"USER-{number % 9}"],
                    )
                )
            producer.send(Message("order-paid", b"<script>document.title='taken'</script>"))
        with running.admin() as admin:
            # As it is once a consumer of the group was there.
            admin.create_topic("%RETRY%shipping", 1)
            admin.create_topic("drafts", 1)
            admin.create_topic("%DLQ%shipping", 1)
            admin.create_topic("long-ids", 1)
        with running.producer() as producer:
            dead = Message("%DLQ%shipping", b"dead")
            dead.put("RETRY_TOPIC", "order-paid")
            producer.send(dead)
            # As of a producer with an IPv6 address.
            unique_key = "FD" + "00" * 15 + "27174F266DA2574C42141010"
            producer.send(Message("long-ids", b"{}", keys=["K" * 100], unique_key=unique_key))
        sources = ["--namesrv", running.name_server, "--store", str(golden("5.5.0").store)]
        words = [sys.executable, "-m", "rocketlens", "console", *sources, "--bind", "127.0.0.1:0"]
        # Jobs and saved searches are those of these tests.
        state = {**os.environ, "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=state) as process:
            try:
                yield process.stdout.readline().split()[1].rstrip("/,")
            finally:
                process.terminate()


@pytest.fixture(scope="module")
def guarded(chromium, golden, tmp_path_factory):
    """Give the address of a console over a golden store, where users have to log in."""
    users = tmp_path_factory.mktemp("users") / "users.toml"
    user = f'password = "{HASH}"\ngrants = [{{ role = "viewer" }}]\n'
    users.write_text(f"[users.li]\n{user}[users.wu]\n{user}")
    users.chmod(0o600)
    sources = ["--store", str(golden("5.5.0").store), "--users", str(users)]
    words = [sys.executable, "-m", "rocketlens", "console", *sources, "--bind", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[1].rstrip("/,")
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser(chromium):
    """Give a browser.

    Its driver keeps an event loop running in this thread: other tests of the process come after it.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def window(browser):
    """Give the page that tests use one after the other: each new one costs 2 s of a processor."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def open_page(browser, window, console):
    """Give a function that opens a path in a page as of a new visitor; no page may complain.

    It is always the same page, but for those without scripts.
    """
    contexts, complaints = [], []

    def complain_of(error):
        complaints.append(str(error))

    def complain_in(message):
        if message.type == "error" and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    def open_path(
        path, *, at=console, language="en", theme="light", script=True, width=1280, height=800
    ):
        page = window
        if not script:
            contexts.append(browser.new_context(java_script_enabled=False))
            page = contexts[-1].new_page()
        context = page.context
        context.set_default_timeout(PATIENCE_S * 1000)
        context.clear_cookies()
        if script:
            # No script of the console runs there, which would keep more.
            page.goto(f"{at}/api/sources")
            page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.set_viewport_size({"width": width, "height": height})
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=at)
        chosen = {"rl_language": language, "rl_theme": theme}
        context.add_cookies([{"name": n, "value": v, "url": at} for n, v in chosen.items()])
        page.goto(at + path, wait_until="load")
        return page

    window.on("pageerror", complain_of)
    window.on("console", complain_in)
    yield open_path
    window.remove_listener("pageerror", complain_of)
    window.remove_listener("console", complain_in)
    window.emulate_media(media="null")
    window.goto("about:blank")
    for context in contexts:
        context.close()
    assert complaints == []
