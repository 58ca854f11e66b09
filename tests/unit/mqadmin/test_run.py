"""Commands, their command lines, help and layouts are those of RocketMQ's tools."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import AnswerIncomplete, BadInput
from rocketlens.mqadmin.cluster_commands import cluster_list
from rocketlens.mqadmin.command_line import COMMON, check_required, parse
from rocketlens.mqadmin.commands import COMMANDS, ONLY_REAL
from rocketlens.mqadmin.run import OURS, command_list, command_named, tools_file_context, usage_of
from rocketlens.terminal.contexts import Context
from tests.unit.mqadmin.fake_tool import DEAD, call
from tests.unit.mqadmin.printed_by_rocketmq import printed


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize(
    "name", ["printMsg", "queryMsgById", "queryMsgByKey", "queryMsgByOffset", "queryMsgByUniqueKey"]
)
def test_the_help_of_a_command_is_that_of_the_real_tool(golden, version, name):
    expected = printed(golden, version, f"help-{name}")
    assert usage_of(command_named(name.upper()), version[:3]) == f"{expected}\n"


def test_a_command_is_found_in_any_case_and_an_unknown_one_refused():
    assert command_named("QUERYMSGBYID").name == "queryMsgById"
    with pytest.raises(BadInput, match=r"updatBroker not exist; did you mean updateBrokerConfig"):
        command_named("updatBroker")
    with pytest.raises(BadInput, match=r"The sub command nonsense not exist\. \("):
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


NOT_IN_4_9 = {"haStatus", "dumpCompactionLog", "setConsumeMode"}


def test_a_command_that_only_the_real_tool_has_is_named_so():
    for name in ("updateKvConfig", "ADDBROKER"):
        with pytest.raises(BadInput, match="RocketMQ's mqadmin has it, this one does not"):
            command_named(name)
    assert not {each.name for each in COMMANDS} & set(ONLY_REAL)


def test_query_msg_by_id_needs_no_topic():
    options = command_named("queryMsgById").options
    check_required(options, parse(options, ["-i", "00"]))


@pytest.mark.parametrize("layout", ["4.9", "5.5"])
def test_the_help_of_every_command_that_the_real_tools_know_is_theirs(layout):
    texts = Path(__file__).with_name("printed").joinpath(f"help-{layout}.txt").read_text()
    # They have the class of decodeMessageId, but no longer know its name.
    # The help of commands about access has tests of its own.
    unknown = {"decodeMessageId"} | (NOT_IN_4_9 if layout == "4.9" else set())
    known = [each for each in COMMANDS if each.name not in unknown and each.namespaced]
    assert "".join(usage_of(command, layout) for command in known) == texts


@pytest.mark.parametrize("command", ["updateSubGroup", "deleteSubGroup"])
def test_a_group_is_not_changed_nowhere(mqadmin, command):
    done = mqadmin(command, "-g", "g")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "-b" in done.err


@pytest.mark.parametrize("text", ["a=b", "+a", "+a=1,+a=2", "-a=b"])
def test_attributes_are_set_with_plus_and_removed_with_minus(mqadmin, rocketmq, text):
    done = mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "g", "--attributes", text)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "attributes" in done.err


def file_of(name):
    return Path(__file__).with_name("printed").joinpath(f"{name}.txt").read_text()


@pytest.mark.parametrize("version", ["4.9", "5.5"])
def test_each_broker_has_a_row_and_one_that_is_gone_an_empty_one(version, capsys):
    for options, name in (({}, f"clusterList-{version}"), ({"m": None}, "clusterList-m")):
        with pytest.raises(AnswerIncomplete, match=DEAD):
            asyncio.run(cluster_list(call(version, **options)))
        assert capsys.readouterr().out == file_of(name)


def test_one_cluster_may_be_listed_alone(capsys):
    asyncio.run(cluster_list(call("5.5", c="Second")))
    head, *rows = file_of("clusterList-5.5").splitlines()
    assert capsys.readouterr().out.splitlines() == [head, rows[0]]


OPTIONS = (*COMMON, *command_named("queryMsgByUniqueKey").options)
VALUES = st.text(min_size=1).filter(lambda text: not text.startswith(("-", "=", '"')))


@given(VALUES, st.sampled_from(["-t {}", "-t{}", "-t={}", "--topic {}", "--topic={}", "-topic {}"]))
def test_every_form_of_an_option_gives_its_value(value, form):
    before, space, after = form.partition(" ")
    words = [before, after.format(value)] if space else [form.format(value)]
    if form == "-t{}" and "topic".startswith(value.partition("=")[0][:4].join(["t", ""])):
        return  # -to is the long name cut short, there as here
    assert parse(OPTIONS, words).text("t") == value.strip()


@given(st.lists(st.text(max_size=12), max_size=8), st.sampled_from(COMMANDS))
def test_any_words_are_read_or_refused(words, command):
    with suppress(BadInput):
        parse((*COMMON, *command.options), words)


def test_a_long_name_may_be_cut_short_and_a_doubtful_one_is_refused():
    assert parse(OPTIONS, ["--top", "T", "--show"]).text("t") == "T"
    with pytest.raises(BadInput, match="Ambiguous option"):
        parse(OPTIONS, ["--c", "x"])


def test_our_own_options_take_nothing_from_the_real_tools_command_lines():
    options = (*OURS, *COMMON, *command_named("topicRoute").options)
    found = parse(options, ["--l", "-tls", "--layout", "4.9", "--tls", "--context=prod"])
    assert "l" in found
    assert found.text("t") == "ls"
    assert (found.text("layout"), found.text("context"), "tls" in found) == ("4.9", "prod", True)
    for word in ("--lay", "--cont", "-context"):
        with pytest.raises(BadInput, match="Unrecognized option"):
            parse(options, [word, "x"])
    with pytest.raises(BadInput, match="Missing argument for option: context"):
        parse(options, ["--context", "--tls"])


def test_topic_and_group_are_those_of_the_namespace():
    found = parse(OPTIONS, ["-t", " Orders ", "-g", "%RETRY%g", "-i", "Orders"]).in_namespace("ns")
    assert [found.text(letter) for letter in "tgi"] == ["ns%Orders", "%RETRY%ns%g", "Orders"]


def test_flags_stand_together_with_an_option_that_takes_a_value():
    found = parse(OPTIONS, ["-ahtOrders"])
    assert "a" in found
    assert "h" in found
    assert found.text("t") == "Orders"


def test_negative_numbers_and_unknown_options_are_values():
    found = parse(OPTIONS, ["-i", "-5", "-t", "-xyz"])
    assert (found.text("i"), found.text("t")) == ("-5", "-xyz")


def test_quotation_marks_around_a_value_are_taken_off_and_the_first_value_counts():
    assert parse(OPTIONS, ["-t", '"A B"', "-t", "C"]).text("t") == "A B"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-t"], "Missing argument for option: t"),
        (["-t", "-i", "x"], "Missing argument for option: t"),
        (["-z", "x"], "Unrecognized option: -z"),
        (["--zone", "x"], "Unrecognized option: --zone"),
        (["-t", "T", "more"], "'more' does not belong to an option"),
    ],
)
def test_a_wrong_command_line_is_refused_in_the_words_of_the_real_tool(words, text):
    with pytest.raises(BadInput, match=text):
        parse(OPTIONS, words)


def test_what_is_missing_is_named():
    with pytest.raises(BadInput, match="Missing required options: i, t"):
        check_required(OPTIONS, parse(OPTIONS, []))
    options = command_named("updateTopic").options
    with pytest.raises(BadInput, match="give exactly one of -b, -c"):
        check_required(options, parse(options, ["-t", "T"]))
