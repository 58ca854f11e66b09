"""The table of a provider: what it can say, what it grants, and that mistakes are not quoted."""

import asyncio
import ssl
import tomllib

import pytest

from rocketlens.console.login.oidc_settings import claim_of, is_loopback, oidc_settings
from rocketlens.console.login.users import read_users
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.errors import BadInput
from tests.support.console_users import HASH

GOOD = """
issuer = "https://login.example.com/realms/shop"
client_id = "rocketlens"
[[rules]]
groups = ["shop-*", "CN=Ops [all],OU=x"]
role = "operator"
sources = ["prod"]
topics = ["order-*"]
[[rules]]
users = ["li@example.com"]
groups = ["admins"]
role = "admin"
"""


@pytest.fixture
def settings_of(tmp_path):
    def read(text):
        return oidc_settings("file: oidc", tomllib.loads(text), tmp_path)

    return read


def with_line(line):
    return f"{line}\n{GOOD}"


def test_the_shortest_table_has_the_fields_own_defaults(settings_of):
    found = settings_of(GOOD)
    assert (found.issuer, found.client_id) == (
        "https://login.example.com/realms/shop",
        "rocketlens",
    )
    assert (found.client_secret, found.public_url, found.public_host) == (None, None, None)
    assert found.scopes == ("openid", "profile", "email")
    assert (found.name_claim, found.groups_claim) == ("preferred_username", "groups")
    assert (found.label, found.provider_logout) == ("login.example.com", True)
    assert (found.tls.verify_mode, found.tls.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_every_key_is_read(settings_of, tmp_path, monkeypatch):
    monkeypatch.setenv("OIDC_SECRET", "s3cret")
    found = settings_of(
        'client_secret_env = "OIDC_SECRET"\npublic_url = "https://lens.example.com/"\n'
        'label = "Example"\nscopes = ["openid", "groups"]\nname_claim = "email"\n'
        'groups_claim = "realm_access.roles"\nprovider_logout = false\n' + GOOD
    )
    assert (found.client_secret, found.label) == ("s3cret", "Example")
    assert (found.public_url, found.public_host) == ("https://lens.example.com", "lens.example.com")
    assert (found.scopes, found.provider_logout) == (("openid", "groups"), False)
    assert found.needed_claims == ("email", "realm_access.roles")
    assert "s3cret" not in repr(found)


def test_the_secret_is_in_a_file_beside_the_table(settings_of, tmp_path):
    secret = tmp_path / "oidc.secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    assert settings_of(with_line('client_secret_file = "oidc.secret"')).client_secret == "s3cret"


@pytest.mark.parametrize(
    ("name", "groups", "roles"),
    [
        ("wu", [], []),
        ("wu", ["shop-ops"], [Role.OPERATOR]),
        ("wu", ["SHOP-ops", "xshop-ops", "shop"], []),
        ("wu", ["CN=Ops [all],OU=x"], [Role.OPERATOR]),
        ("wu", ["CN=Ops a,OU=x"], []),
        ("wu", ["shop-a", "shop-b", "admins"], [Role.OPERATOR, Role.ADMIN]),
        ("li@example.com", [], [Role.ADMIN]),
        ("Li@example.com", [], []),
        ("li@example.com\n", [], []),
        # A name is no group, nor a group a name.
        ("admins", ["li@example.com"], []),
    ],
)
def test_a_user_has_the_grants_of_the_rules_for_its_name_or_groups(
    settings_of, name, groups, roles
):
    viewer = settings_of(GOOD).viewer(name, groups)
    assert [each.role for each in viewer.grants] == roles
    assert viewer.name == f"oidc:{name}"


def test_a_rule_grants_what_a_local_user_can_have(settings_of):
    viewer = settings_of(GOOD).viewer("wu", ["shop-ops"])
    assert viewer.grants == (Grant(Role.OPERATOR, ("prod",), ("order-*",)),)


def test_groups_are_needed_only_where_a_rule_has_some(settings_of):
    head = 'issuer = "https://a.example"\nclient_id = "a"\n'
    rule = '[[rules]]\nusers = ["*"]\nrole = "viewer"\n'
    assert settings_of(head + rule).needed_claims == ("preferred_username",)
    assert settings_of(GOOD).needed_claims == ("preferred_username", "groups")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "issuer is missing"),
        (GOOD.replace("client_id", "label"), "client_id is missing"),
        (GOOD.replace("https", "http"), "issuer must be https"),
        (GOOD.replace("https", "ftp"), "issuer must be an address"),
        (GOOD.replace("https://", "https://geheim@"), "issuer must be an address"),
        (GOOD.replace("/shop", "/shop?geheim"), "issuer must be an address"),
        (GOOD.replace("/shop", "/shop#geheim"), "issuer must be an address"),
        (GOOD.replace("/shop", "/ge heim"), "issuer must be an address"),
        (GOOD.replace("login.example.com", "[geheim"), "issuer must be an address"),
        (GOOD.replace("login.example.com", "login:99999"), "issuer must be an address"),
        (with_line("label = 3"), "label must be a text"),
        (with_line('label = ""'), "label must be a text"),
        (with_line('label = "\\u0007"'), "label must be a text"),
        (with_line('public_url = "geheim"'), "public_url must be an address"),
        (with_line('public_url = "https://a.example/geheim"'), "public_url has a path"),
        (with_line('scopes = ["geheim"]'), 'a list with "openid"'),
        (with_line('scopes = "openid"'), 'a list with "openid"'),
        (with_line('scopes = ["openid", "ge heim"]'), 'a list with "openid"'),
        (with_line('provider_logout = "geheim"'), "provider_logout must be true or false"),
        (with_line('client_secret = "geheim"'), "1 unknown keys"),
        (with_line('client_secret_env = "geheim"'), "is not set"),
        (with_line('client_secret_file = "geheim"'), "cannot be read: No such file"),
        (with_line('client_secret_env = "a"\nclient_secret_file = "b"'), "not both"),
        (with_line('ca = "none.pem"'), "certificate authority"),
        (GOOD.partition("[[")[0], "add [[oidc.rules]]"),
        (with_line("rules = []").partition("[[")[0], "add [[oidc.rules]]"),
        (with_line("rules = [3]").partition("[[")[0], "rule number 1 must be a table"),
        (GOOD.replace("users =", "geheim ="), "rule number 2: 1 unknown keys"),
        (GOOD.replace("operator", "geheim"), "rule number 1: role must be one of"),
        (GOOD.replace('["shop-*"', '["", "geheim"'), "rule number 1: groups must be a list"),
        (GOOD.replace('["li@', '["\\u0000geheim'), "rule number 2: users must be a list"),
        (GOOD.replace('["order-*"]', '"geheim"'), "rule number 1: topics must be a list"),
        (
            GOOD.replace('groups = ["admins"]', "").replace('users = ["li@example.com"]', ""),
            "rule number 2: groups and users are missing",
        ),
    ],
)
def test_a_mistake_of_the_table_is_named_and_not_quoted(settings_of, text, said):
    with pytest.raises(BadInput) as caught:
        settings_of(text)
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "issuer", ["http://127.0.0.1:8080/default", "http://localhost:1", "http://[::1]:1"]
)
def test_a_provider_on_this_machine_may_be_plain(settings_of, issuer):
    assert (
        settings_of(GOOD.replace("https://login.example.com/realms/shop", issuer)).issuer == issuer
    )


def file_of(tmp_path, text):
    path = tmp_path / "users.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_file_of_users_may_have_a_provider_and_no_users(tmp_path):
    text = "[oidc]\n" + GOOD.replace("[[rules]]", "[[oidc.rules]]")
    found = read_users(file_of(tmp_path, text))
    assert len(found) == 0
    assert found.oidc.client_id == "rocketlens"
    assert asyncio.run(found.viewer_of("li@example.com", "")) is None
    assert asyncio.run(found.viewer_of("oidc:li@example.com", "x")) is None


def test_a_file_of_users_may_have_both(tmp_path):
    local = f'[users.li]\npassword = "{HASH}"\ngrants = [{{ role = "viewer" }}]\n'
    text = local + "[oidc]\n" + GOOD.replace("[[rules]]", "[[oidc.rules]]")
    found = read_users(file_of(tmp_path, text))
    assert len(found) == 1
    assert found.oidc is not None
    assert read_users(file_of(tmp_path, local)).oidc is None
    with pytest.raises(BadInput, match="oidc must be a table"):
        read_users(file_of(tmp_path, "oidc = 3\n" + local))


def test_a_claim_is_named_whole_or_by_its_way():
    claims = {"a.b": 1, "a": {"b": 2, "c": {"d": 3}}, "https://x.example/roles": ["r"], "n": None}
    assert claim_of(claims, "a.b") == 1
    assert claim_of(claims, "a.c.d") == 3
    assert claim_of(claims, "https://x.example/roles") == ["r"]
    for missing in ("b", "a.x", "a.b.c", "a.c.d.e", "n", "n.x", ""):
        assert claim_of(claims, missing) is None


def test_only_names_of_this_machine_are_loopback():
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    others = ("", "localhost.example.com", "10.0.0.1", "127.0.0.1.example.com", "0.0.0.0")
    assert not any(map(is_loopback, others))
