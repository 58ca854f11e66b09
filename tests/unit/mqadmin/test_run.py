"""Finding a command, its help, and layouts."""

import pytest

from rocketlens.errors import BadInput
from rocketlens.mqadmin.commands import COMMANDS
from rocketlens.mqadmin.run import command_list, command_named, tools_file_context, usage_of
from rocketlens.terminal.contexts import Context
from tests.unit.mqadmin.printed_by_rocketmq import printed


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize(
    "name",
    ["printMsg", "queryMsgById", "queryMsgByKey", "queryMsgByOffset", "queryMsgByUniqueKey"],
)
def test_the_help_of_a_command_is_that_of_the_real_tool(golden, version, name):
    expected = printed(golden, version, f"help-{name}")
    assert usage_of(command_named(name.upper()), version[:3]) == f"{expected}\n"


def test_a_command_is_found_in_any_case_and_an_unknown_one_refused():
    assert command_named("QUERYMSGBYID").name == "queryMsgById"
    with pytest.raises(BadInput, match="The sub command nonsense not exist"):
        command_named("nonsense")


@pytest.mark.parametrize("words", [(), ("help",), ("--layout", "4.9", "help")])
def test_help_lists_every_command_and_asks_no_cluster(run, words):
    done = run("mqadmin", *words)
    assert (done.code, done.err) == (0, "")
    assert done.out == command_list("4.9" if words[1:] else "5.5")
    assert all(command.name in done.out for command in COMMANDS)


@pytest.mark.parametrize(
    "words", [("--layout", "6", "topicList"), ("topicList", "--layout", "6"), ("--layout", "6")]
)
def test_an_unknown_layout_is_refused(run, words):
    done = run("mqadmin", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "expected 4.9 or 5.5" in done.err


def test_a_wrong_option_points_to_the_help_of_the_command(run):
    done = run("mqadmin", "topicroute", "-t", "T", "--nonsense", "x")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "rocketlens mqadmin help topicRoute" in done.err


@pytest.fixture
def read_only(run, rocketmq, tmp_path, monkeypatch):
    """Give ``read_only(command, *words) -> Done``, in a context that is read-only."""
    config = tmp_path / "config.toml"
    config.write_text(f'[contexts.p]\nnamesrv = "{rocketmq.name_server}"\nread_only = true\n')
    config.chmod(0o600)
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(config))
    return lambda *words: run("mqadmin", "--context", "p", *words)


CHANGING = (
    *("updateTopic", "deleteTopic", "updateTopicPerm", "sendMessage", "checkMsgSendRT"),
    *("sendMsgStatus", "updateSubGroup", "deleteSubGroup", "setConsumeMode"),
    *("resetOffsetByTime", "skipAccumulatedMessage", "cloneGroupOffset"),
    *("updateBrokerConfig", "wipeWritePerm", "addWritePerm", "triggerLiteDispatch"),
    *("updateAclConfig", "deleteAclConfig", "updateGlobalWhiteAddr"),
    *("createUser", "updateUser", "deleteUser", "copyUser"),
    *("createAcl", "updateAcl", "deleteAcl", "copyAcl"),
)


def test_the_commands_that_change_a_cluster_are_these():
    assert tuple(each.name for each in COMMANDS if not each.only_reads) == CHANGING


@pytest.mark.parametrize(
    "words",
    [
        ("statsAll",),
        ("queryMsgByUniqueKey", "-t", "T", "-i", "KEY", "-s", "0", "-e", "9999999999999"),
    ],
)
def test_a_read_only_context_allows_what_changes_nothing(read_only, sent, words):
    done = read_only(*(sent.msg_id if each == "KEY" else each for each in words))
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ("deleteTopic", "-t", "T", "-c", "DefaultCluster"),
        ("queryMsgById", "-t", "T", "-i", "KEY", "-s", "true"),
        ("queryMsgByUniqueKey", "-t", "T", "-i", "KEY", "-g", "g", "-d", "client"),
    ],
)
def test_a_read_only_context_refuses_what_sends_or_changes_something(read_only, words):
    done = read_only(*words)
    assert (done.code, done.out) == (2, "")
    assert "this context is read_only" in done.err


SECRET = "k7-very-secret"


def test_the_keys_of_the_tools_file_are_taken(tmp_path, monkeypatch):
    assert tools_file_context() == Context()
    file = tmp_path / "conf" / "tools.yml"
    file.parent.mkdir()
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert tools_file_context() == Context()
    for access_key, secret_key in (
        ("rocketmq2", "12345678"),
        ('"rocketmq2"  # who', "'12345678'"),
        ("'rocketmq2'", '"12345678" # a comment'),
        ("  rocketmq2 ", "12345678 "),
    ):
        file.write_text(f"# as delivered\n\naccessKey: {access_key}\r\nsecretKey: {secret_key}\n")
        file.chmod(0o600)
        assert tools_file_context() == Context(access_key="rocketmq2", secret_key="12345678")
    file.write_text("accessKey: a#b\nsecretKey: 'it''s'\nother: [1]\n")
    assert tools_file_context() == Context(access_key="a#b", secret_key="it's")
    for empty in (
        "",
        "accessKey: a\n",
        "accessKey: a\nsecretKey:\n",
        "accessKey: ''\nsecretKey: b",
    ):
        file.write_text(empty)
        assert tools_file_context() == Context()
    file.write_text(f"accessKey: a\nsecretKey: !{SECRET}")
    with pytest.raises(BadInput, match="line 2 is not supported") as caught:
        tools_file_context()
    assert SECRET not in str(caught.value)


def test_keys_in_the_tools_file_are_texts_or_numbers(tmp_path, monkeypatch):
    file = tmp_path / "conf" / "tools.yml"
    file.parent.mkdir()
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    for wrong in ("yes", "[a]", "1.5"):
        file.write_text(f"accessKey: a\nsecretKey: {wrong}\n")
        file.chmod(0o600)
        with pytest.raises(BadInput, match="secretKey is not text: write it in quotes"):
            tools_file_context()
    for empty in ("- a\n", "a\n"):
        file.write_text(empty)
        assert tools_file_context() == Context()
