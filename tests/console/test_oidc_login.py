"""Logins by a provider that others wrote: by hand, and in a real browser."""

import json
import re
import subprocess
import sys
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.peer.oidc_provider import running_provider
from tests.peer.rocketmq_peer import PeerUnavailable
from tests.support.made_stores import Sent, make_store
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.peer

USERS = """
[oidc]
issuer = "{issuer}"
client_id = "rocketlens"
client_secret_env = "TEST_OIDC_SECRET"
label = "Example"

[[oidc.rules]]
groups = ["shop-*"]
role = "viewer"
topics = ["order-*"]
"""
STAFF = {"preferred_username": "li", "groups": ["staff", "shop-ops"]}
STRANGER = {"preferred_username": "wu", "groups": ["staff"]}


@pytest.fixture(scope="module")
def provider(jdk, tmp_path_factory):
    """Give the issuer of a provider that runs, or skip."""
    try:
        with running_provider(jdk, tmp_path_factory.mktemp("provider")) as issuer:
            yield issuer
    except PeerUnavailable as unavailable:
        pytest.skip(f"NO LOGIN BY A REAL PROVIDER WAS TRIED: {unavailable}")


@pytest.fixture(scope="module")
def served(provider, tmp_path_factory):
    """Give the address of a console whose users the provider has, and its audit log."""
    directory = tmp_path_factory.mktemp("served")
    made = make_store(directory / "store", [Sent(topic="order-paid"), Sent(topic="salary")])
    users, log = directory / "users.toml", directory / "audit.log"
    users.write_text(USERS.format(issuer=provider))
    users.chmod(0o600)
    words = ["--store", str(made.path), "--users", str(users), "--audit-log", str(log)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TEST_OIDC_SECRET", "s3cret")
        process = subprocess.Popen(
            [sys.executable, "-m", "rocketlens", "console", *words, "--bind", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            text=True,
        )
    with process:
        try:
            yield process.stdout.readline().split()[1].rstrip("/,"), log
        finally:
            process.terminate()


@pytest.fixture
def client(served):
    """Give a browser's cookies and patience, without a browser."""
    with httpx.Client(base_url=served[0], timeout=PATIENCE_S, trust_env=False) as made:
        yield made


def sent_back(client, claims, path="/login/oidc?back=/topics"):
    """Log in at the provider's own page; give where that sends the browser."""
    asked = client.get(path)
    assert asked.status_code == 303
    page = client.get(asked.headers["location"])
    assert "username" in page.text
    form = {"username": "u-1", "claims": json.dumps(claims)}
    return client.post(page.url, data=form).headers["location"]


def events(log):
    return [(each["event"], each["user"]) for each in map(json.loads, log.read_text().splitlines())]


def test_a_user_of_the_provider_sees_what_its_groups_may(client, served):
    done = client.get(sent_back(client, STAFF))
    assert (done.status_code, done.headers["location"]) == (303, "/topics")
    assert "oidc:li" in client.get("/topics").text
    assert [each["name"] for each in client.get("/api/topics").json()["topics"]] == ["order-paid"]
    assert ("login", "oidc:li") in events(served[1])


def test_a_code_of_the_provider_counts_once(client):
    location = sent_back(client, STAFF)
    cookie = client.cookies["rl_oidc"]
    assert client.get(location).status_code == 303
    again = client.get(location, headers={"cookie": f"rl_oidc={cookie}"})
    assert again.status_code == 502
    assert "answered with an error" in again.text


def test_a_code_does_not_count_in_the_login_of_another_browser(client, served):
    stolen = dict(parse_qsl(urlsplit(sent_back(client, STAFF)).query))["code"]
    with httpx.Client(base_url=served[0], timeout=PATIENCE_S, trust_env=False) as other:
        own = sent_back(other, STRANGER)
        code = dict(parse_qsl(urlsplit(own).query))["code"]
        refused = other.get(own.replace(code, stolen))
        # The provider compares the verifier of this login with the challenge of that one.
        assert refused.status_code == 502
        assert other.get("/topics").status_code == 303


def test_a_user_of_the_provider_without_a_rule_has_no_access(client, served):
    page = client.get(sent_back(client, STRANGER))
    assert page.status_code == 403
    assert "No access: you are oidc:wu" in page.text
    assert client.get("/topics").status_code == 303
    assert ("refused", "oidc:wu") in events(served[1])


def test_a_logout_ends_at_the_provider(client, provider, served):
    client.get(sent_back(client, STAFF))
    left = client.post("/logout", headers={"origin": str(client.base_url).removesuffix("/")})
    (address,) = set(re.findall(r'href="(http[^"]*)"', left.text))
    assert address.startswith(f"{provider}/endsession?")
    back = client.get(address.replace("&amp;", "&")).headers["location"]
    assert back == f"{served[0]}/login"


@pytest.mark.parametrize("language", [pytest.param("en", marks=pytest.mark.slow), "zh"])
def test_in_a_browser_the_button_leads_to_the_provider_and_back(browser, served, language):
    address = served[0]
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_S * 1000)
    context.add_cookies([{"name": "rl_language", "value": language, "url": address}])
    try:
        page = context.new_page()
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{address}/topics")
        found = Axe().run(page).response["violations"]
        assert [each["id"] for each in found] == []
        page.locator("main a.button").click()
        page.locator("input[name=username]").fill("u-1")
        page.locator("textarea[name=claims]").fill(json.dumps(STRANGER))
        page.locator("input[type=submit]").click()
        page.locator("[role=alert]").wait_for()
        assert "oidc:wu" in page.locator("[role=alert]").inner_text()
        page.locator("main a.button").click()
        page.locator("input[name=username]").fill("u-2")
        page.locator("textarea[name=claims]").fill(json.dumps(STAFF))
        page.locator("input[type=submit]").click()
        page.locator("form[action='/logout']").wait_for()
        assert "oidc:li" in page.locator("header").inner_text()
        page.goto(f"{address}/topics")
        assert "order-paid" in page.locator("main").inner_text()
        assert "salary" not in page.locator("main").inner_text()
        # By way of the provider, which ends its session, too.
        page.locator("form[action='/logout'] button").click()
        page.wait_for_url(f"{address}/login")
        page.goto(f"{address}/topics")
        page.wait_for_url("**/login?back=*")
        assert complaints == []
    finally:
        context.close()
