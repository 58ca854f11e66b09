"""Our mqadmin asks a real broker, and prints what RocketMQ's own tool prints."""

import re
import shutil

import pytest

from rocketlens.main import main

VERSION = "5.5.0"
BODIES = re.compile(r"^(Message Body Path: +).*/", re.MULTILINE)
AS_THE_STORE = {
    "mappedFileSizeCommitLog": 262_144,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 1_000,
}
SMALL_TOPIC = {"4.9.7": "T11", "5.5.0": "T22"}
# Those before the figures of this moment.
CLUSTER_COLUMNS = 5


@pytest.fixture(scope="module")
def broker(peer, golden, tmp_path_factory):
    """A real broker on a copy of the golden store."""
    directory = tmp_path_factory.mktemp("mqadmin")
    shutil.copytree(golden(VERSION).store, directory / "store", symlinks=True)
    with peer.start(VERSION, directory, **AS_THE_STORE) as running:
        yield running


@pytest.fixture
def ours(broker, capsys):
    """Give ``ours(*words) -> (code, out, err)``."""

    def run(command, *words):
        capsys.readouterr()
        code = main(["mqadmin", command, "-n", broker.namesrv_address, *map(str, words)])
        return code, *capsys.readouterr()

    return run


def comparable(text):
    """Lines without what differs: where bodies are, and an empty line at the top.

    That line is no command's: the logging of RocketMQ 5.5 ends its report on itself with it, and
    prints neither where its configuration gives it no cause. Bodies have line ends of all kinds,
    which reading the real tool's output makes alike.
    """
    return BODIES.sub(r"\1", text).strip("\n").splitlines()


def theirs(peer, broker, command, *words):
    arguments = (command, "-n", broker.namesrv_address, *map(str, words))
    said = peer.mqadmin(VERSION, *arguments)
    for _ in range(4):
        # It gives up on a broker after seconds, which a busy machine can need.
        if not re.search(r"Remoting\w+Exception", said):
            break
        said = peer.mqadmin(VERSION, *arguments)
    return comparable(said)


def exact(line):
    return line


def varying(line):
    """The line without numbers and ids, which differ from call to call."""
    return re.sub(r"\b[0-9A-F]{32,56}\b|\d+(\.\d+)?", "N", line)


def named(line):
    """The name of a figure, and where its value begins."""
    return line[: line.index(": ")]


@pytest.fixture(autouse=True)
def private_bodies(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_each_command_prints_what_the_real_tool_of_a_release_prints(
    peer, golden, tmp_path, capsys, version
):
    shutil.copytree(golden(version).store, tmp_path / "store", symlinks=True)
    with peer.start(version, tmp_path, **AS_THE_STORE) as broker:
        address, cluster = ("-b", broker.broker_address), ("-c", "DefaultCluster")
        made, orders = ("-t", "Made"), ("-t", "OrderTopic")
        for seen, command, *words in (
            (exact, "updateTopic", *made, *address, "-r", 3, "-w", 2),
            (exact, "updateTopic", "-t", "Ordered", *cluster, "-o", "true"),
            (exact, "topicStatus", *orders),
            (exact, "topicRoute", *made),
            (exact, "topicRoute", *made, "-l"),
            (exact, "topicList"),
            (exact, "topicList", "-c"),
            (varying, "sendMessage", *made, "-p", "x", "-b", "broker-a", "-i", 1),
            (varying, "checkMsgSendRT", *made, "-a", 3),
            (named, "brokerStatus", *address),
            (named, "brokerStatus", *cluster),
            (exact, "queryMsgByKey", *orders, "-k", "AaAa"),
            (exact, "queryMsgByOffset", *orders, "-b", "broker-a", "-i", 0, "-o", 9),
            (exact, "printMsg", "-t", SMALL_TOPIC[version], "-d", "true"),
            (exact, "deleteTopic", *made, *cluster),
        ):
            arguments = (command, "-n", broker.namesrv_address, *map(str, words))
            real = comparable(peer.mqadmin(version, *arguments))
            capsys.readouterr()
            assert main(["mqadmin", "--layout", version[:3], *arguments]) == 0
            out = comparable(capsys.readouterr().out)
            assert sorted(map(seen, out)) == sorted(map(seen, real)), words
            assert seen is not exact or out == real, words


def test_messages_and_tables_are_printed_as_the_real_tool_prints_them(peer, golden, broker, ours):
    printed = golden(VERSION).mqadmin / "queryMsgById-topic.txt"
    offset_id, unique_key = (
        re.search(pattern, printed.read_text(encoding="utf-8"))[1]
        for pattern in (r"OffsetID: +(\w+)", r"UNIQ_KEY=(\w+)")
    )
    for words in (
        ("queryMsgByOffset", "-t", "OrderTopic", "-b", "broker-a", "-i", 0, "-o", 9),
        ("queryMsgByKey", "-t", "OrderTopic", "-k", "AaAa"),
        ("printMsg", "-t", "T22", "-d", "true"),
    ):
        code, out, err = ours(*words)
        assert (code, words, comparable(out)) == (0, words, theirs(peer, broker, *words)), err
    # Ids of either kind, without a topic where the id says enough, and of any age. The offset id
    # names a port on which the broker was before: the real tool would dial that, and fail.
    for words in (
        ("queryMsgById", "-i", offset_id),
        ("queryMsgByUniqueKey", "-t", "OrderTopic", "-i", offset_id),
        ("queryMsgByUniqueKey", "-t", "OrderTopic", "-i", unique_key),
    ):
        code, out, err = ours(*words)
        assert (code, err) == (0, "")
        assert unique_key in out


MORE = (
    (exact, "topicClusterList", "-t", "OrderTopic"),
    (exact, "printMsgByQueue", "-t", "OrderTopic", "-a", "broker-a", "-i", 0, "-p", "true"),
    (
        *(exact, "printMsgByQueue", "-t", "OrderTopic", "-a", "broker-a", "-i", 1),
        *("-p", "true", "-d", "true", "-f", "true"),
    ),
    (exact, "queryCq", "-t", "OrderTopic", "-q", 0, "-i", 0, "-c", 3, "-g", "not-online"),
    (varying, "haStatus", "-b", "BROKER"),
    (varying, "haStatus", "-c", "DefaultCluster"),
    (exact, "brokerConsumeStats", "-b", "BROKER"),
    (exact, "getConsumerConfig", "-g", "NewGroup"),
    (exact, "cloneGroupOffset", "-s", "golden_cg", "-d", "golden_cg", "-t", "PayTopic"),
    (exact, "skipAccumulatedMessage", "-g", "golden_cg", "-t", "PayTopic"),
    (exact, "setConsumeMode", "-b", "BROKER", "-t", "OrderTopic", "-g", "G", "-m", "POP"),
    (
        exact,
        "setConsumeMode",
        "-c",
        "DefaultCluster",
        "-t",
        "PayTopic",
        "-g",
        "G",
        "-m",
        "PULL",
        "-q",
        2,
    ),
    (
        exact,
        "updateBrokerConfig",
        "-b",
        "BROKER",
        "-k",
        "maxTransferCountOnMessageInMemory",
        "-v",
        33,
    ),
    (
        exact,
        "updateBrokerConfig",
        "-c",
        "DefaultCluster",
        "-k",
        "waitTimeMillsInSendQueue",
        "-v",
        900,
    ),
    (varying, "wipeWritePerm", "-b", "broker-a"),
    (varying, "addWritePerm", "-b", "broker-a"),
    (varying, "sendMsgStatus", "-b", "T22", "-c", 3),
    (exact, "updateTopicPerm", "-b", "BROKER", "-t", "T22", "-p", 6),
    (varying, "updateTopicPerm", "-c", "DefaultCluster", "-t", "T22", "-p", 4),
    (exact, "getBrokerLiteInfo", "-b", "BROKER", "-d"),
    (exact, "getParentTopicInfo", "-p", "OrderTopic"),
    (exact, "getLiteTopicInfo", "-p", "OrderTopic", "-l", "lite", "-s"),
    (exact, "getLiteClientInfo", "-p", "OrderTopic", "-g", "G", "-c", "client", "-s"),
    (varying, "getLiteGroupInfo", "-p", "OrderTopic", "-g", "G"),
    (exact, "triggerLiteDispatch", "-p", "OrderTopic", "-g", "G"),
)


@pytest.mark.parametrize("row", MORE)
def test_a_command_prints_what_the_real_tool_prints(peer, broker, ours, row):
    seen, command, *words = row
    words = [{"BROKER": broker.broker_address}.get(word, word) for word in words]
    code, out, err = ours(command, *words)
    real = theirs(peer, broker, command, *words)
    assert list(map(seen, comparable(out))) == list(map(seen, real)), err
    assert code == 0 or "error" in out


def test_a_file_of_messages_is_printed_as_the_real_tool_prints_it(
    peer, golden, broker, ours, tmp_path
):
    first = min((golden(VERSION).store / "commitlog").iterdir())
    copied = shutil.copy(first, tmp_path)
    code, out, err = ours("dumpCompactionLog", "-f", copied)
    assert (code, err) == (0, "")
    assert out.count("MessageExt [") > 100
    assert comparable(out) == theirs(peer, broker, "dumpCompactionLog", "-f", copied)
    for path, text in ((tmp_path / "none", "not exist"), (tmp_path, "is a directory")):
        code, out, err = ours("dumpCompactionLog", "-f", path)
        assert (code, out) == (2, "")
        assert text in err


def test_lists_have_what_the_real_tool_lists(peer, broker, ours):
    code, out, _ = ours("topicList")
    assert code == 0
    assert {"OrderTopic", "PayTopic", "T22", "broker-a"} < set(out.split("\n"))
    code, out, _ = ours("clusterList")
    assert code == 0
    head, row = out.splitlines()
    real_head, real_row = theirs(peer, broker, "clusterList")
    assert (head.rstrip(), len(row)) == (real_head.rstrip(), len(real_row))
    assert row.split()[:CLUSTER_COLUMNS] == real_row.split()[:CLUSTER_COLUMNS]
    code, out, _ = ours("brokerStatus", "-b", broker.broker_address)
    assert code == 0
    assert "brokerVersionDesc               : V5_5_0\n" in out


def test_a_failure_is_one_line_and_an_exit_code(ours):
    for code, words in (
        (1, ("queryMsgByKey", "-t", "OrderTopic", "-k", "no-such-key")),
        (1, ("queryMsgByOffset", "-t", "OrderTopic", "-b", "broker-a", "-i", 0, "-o", 999999)),
        (2, ("queryMsgByKey", "-t", "NoSuchTopic", "-k", "x")),
        (2, ("queryMsgByKey", "-t", "OrderTopic")),
        (2, ("brokerStatus", "-b", "127.0.0.1:1")),
    ):
        got, out, err = ours(*words)
        assert (got, words, out, err.count("\n")) == (code, words, "", 1), err


def test_a_topic_is_made_written_to_and_deleted_with_the_real_tools_words(broker, ours):
    address = broker.broker_address
    code, out, err = ours("updateTopic", "-b", address, "-t", "MqadminMade", "-r", 2, "-w", 2)
    assert (code, err) == (0, "")
    assert out == (
        f"create topic to {address} success.\nTopicConfig [topicName=MqadminMade, "
        "readQueueNums=2, writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false, attributes={}]\n"
    )
    words = ("-t", "MqadminMade", "-p", "hello", "-k", "k1", "-b", "broker-a", "-i", 1)
    code, out, err = ours("sendMessage", *words)
    assert (code, err) == (0, "")
    assert re.search(r"^broker-a {24}  1     SEND_OK {13}    [0-9A-F]+$", out, re.MULTILINE)
    code, out, err = ours("checkMsgSendRT", "-t", "MqadminMade", "-a", 3)
    assert (code, err) == (0, "")
    assert re.search(r"^Avg RT: \d+\.\d\d$", out, re.MULTILINE)
    code, out, err = ours("deleteTopic", "-c", "DefaultCluster", "-t", "MqadminMade")
    assert (code, err) == (0, "")
    assert out == (
        "delete topic [MqadminMade] from cluster [DefaultCluster] success.\n"
        "delete topic [MqadminMade] from NameServer success.\n"
    )
