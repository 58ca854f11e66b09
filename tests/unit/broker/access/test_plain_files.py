"""Files of accounts: read as RocketMQ reads them, all or none."""

import asyncio

import pytest

from rocketlens.broker.access import plain_files
from rocketlens.broker.access.plain_files import MAX_ACL_FILE_BYTES, PlainAcl, load_files
from rocketlens.errors import BadInput
from rocketlens.wire.acl import signed_fields
from rocketlens.wire.command import RemotingCommand
from tests.support.async_tests import within

ACCOUNTS = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: orders-app   # a comment
  secretKey: 12345678
  whiteRemoteAddress:
  admin: "false"
  topicPerms: [Orders=PUB]
- {accessKey: other-app, secretKey: 's3cret-s3cret'}
"""


def write(home, text, name="plain_acl.yml", mode=0o600):
    path = home / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # As an editor does it: another file takes its place.
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.chmod(mode)
    beside.replace(path)
    return path


def run(work):
    return asyncio.run(work())


def opened(home):
    return PlainAcl(home)


def is_let_in(acl, user, secret):
    fields = signed_fields({}, b"", user, secret)
    return acl.loaded.rules.decide(RemotingCommand(28, ext_fields=fields), "10.0.0.1") is None


def test_accounts_are_read_as_rocketmq_reads_them(tmp_path):
    write(tmp_path, ACCOUNTS)

    async def work():
        acl = opened(tmp_path)
        assert is_let_in(acl, "orders-app", "12345678")
        assert is_let_in(acl, "other-app", "s3cret-s3cret")
        assert not is_let_in(acl, "orders-app", "s3cret-s3cret")
        assert acl.table().global_white_addrs == ("10.10.103.*",)
        assert acl.table().plain_access_configs[0].topic_perms == ("Orders=PUB",)
        assert "12345678" not in repr(acl.loaded)

    run(work)


@within(run)
async def test_a_missing_file_lets_nobody_in_and_is_not_made(tmp_path):
    acl = opened(tmp_path / "new")
    assert not acl.default_file.exists()
    assert not is_let_in(acl, "orders-app", "12345678")


def test_an_account_of_two_files_is_that_of_the_first(tmp_path, caplog):
    write(tmp_path, ACCOUNTS)
    write(tmp_path, "accounts: [{accessKey: orders-app, secretKey: another-one}]", "acl/a.yml")
    write(tmp_path, "accounts: [{accessKey: third-app, secretKey: 12345678}]", "acl/b/c.yaml")
    write(tmp_path, "accessKey: x", "acl/tools.yml")

    async def work():
        acl = opened(tmp_path)
        assert is_let_in(acl, "orders-app", "another-one")
        assert not is_let_in(acl, "orders-app", "12345678")
        assert is_let_in(acl, "third-app", "12345678")
        assert "orders-app is there before" in caplog.text

    run(work)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts: [", "line 1 is no YAML"),
        ("a: b\n\tc: SECRET99", "line 2 is no YAML"),
        ("- a", "names and values"),
        ("accounts: 7", "accounts is not a list"),
        ("accounts: [7]", "account 1 has no names"),
        ("accounts: [{accessKey: orders-app, secretKey: SECRET}]", "longer than 6"),
        ("accounts: [{accessKey: orders-app, secretKey: 1.5e99}]", "longer than 6|quotes"),
        ("accounts: [{accessKey: orders-app, secretKey: 2001-01-01}]", "put it in quotes"),
        ("accounts: [{accessKey: orders-app, secretKey: [SECRET99]}]", "put it in quotes"),
        ("accounts: [{accessKey: a, secretKey: SECRET99}]", "longer than 6"),
        ("accounts: [{accessKey: orders-app, secretKey: SECRET99, admin: 7}]", "admin"),
        ("accounts: [{accessKey: orders-app, secretKey: SECRET99, topicPerms: a}]", "list"),
        ("globalWhiteRemoteAddresses: [10.0.0]", "'10.0.0' is not an address"),
        ("a: !!python/object/apply:os.getcwd []", "is no YAML"),
        ("a: " + "[" * 5000, "is no YAML"),
        ("#" * (MAX_ACL_FILE_BYTES + 1), "bytes"),
    ],
)
def test_a_file_that_cannot_be_understood_is_bad_input_without_its_secrets(tmp_path, text, words):
    write(tmp_path, text)

    async def work():
        with pytest.raises(BadInput, match=words) as caught:
            opened(tmp_path)
        assert "SECRET99" not in str(caught.value)
        assert "plain_acl.yml" in str(caught.value)

    run(work)


def test_a_file_that_anyone_may_write_is_refused(tmp_path, caplog):
    write(tmp_path, ACCOUNTS, mode=0o606)

    async def work():
        with pytest.raises(BadInput, match="chmod o-w"):
            opened(tmp_path)
        write(tmp_path, ACCOUNTS, mode=0o640)
        opened(tmp_path)
        assert "chmod 600" in caplog.text

    run(work)


def test_a_damaged_file_keeps_the_last_good_rules_and_says_so(tmp_path, caplog):
    write(tmp_path, ACCOUNTS)

    async def again(acl):
        acl.watch()
        # A second look while the first one runs is no other one.
        acl.watch()
        await acl._reload

    async def work():
        acl = opened(tmp_path)
        await again(acl)
        assert not acl.problem
        write(tmp_path, ACCOUNTS.replace("12345678", "another-one"))
        await again(acl)
        assert is_let_in(acl, "orders-app", "another-one")
        write(tmp_path, "accounts: [")
        await again(acl)
        assert is_let_in(acl, "orders-app", "another-one")
        assert "older access rules are in force" in acl.problem
        assert acl.problem in caplog.text
        write(tmp_path, ACCOUNTS)
        await again(acl)
        assert not acl.problem
        assert is_let_in(acl, "orders-app", "12345678")
        # A file that comes, and one that goes.
        added = write(
            tmp_path, "accounts: [{accessKey: new-app, secretKey: 12345678}]", "acl/n.yml"
        )
        await again(acl)
        assert is_let_in(acl, "new-app", "12345678")
        added.unlink()
        await again(acl)
        assert not is_let_in(acl, "new-app", "12345678")
        acl.close()

    run(work)


def test_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_files, "FILES_READ", 2)
    for name in "abc":
        write(tmp_path, "", f"acl/{name}.yml")

    async def work():
        with pytest.raises(BadInput, match="over 2 files"):
            opened(tmp_path)

    run(work)


def test_accounts_are_loaded_for_others(tmp_path):
    write(tmp_path, ACCOUNTS)
    accounts = load_files(tmp_path / "conf").configs
    assert [each.access_key for each in accounts] == ["orders-app", "other-app"]
    assert [path.name for path in (tmp_path / "conf").iterdir()] == ["plain_acl.yml"]
