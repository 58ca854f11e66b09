"""``rocketlens find`` and ``show`` over a running cluster."""

import asyncio
import io
import json
import os
import re
import signal
import threading
from contextlib import redirect_stdout

import pytest

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.queue_read import QueueReader
from rocketlens.client.send.message import Message
from rocketlens.main import main
from rocketlens.terminal.progress import SearchProgress
from rocketlens.testing import cluster
from tests.support.patience import PATIENCE_S

KEY = "ORDER-1"


@pytest.fixture(scope="module")
def sent(rocketmq):
    """What was sent: two topics have the key, one message has none."""
    with rocketmq.producer() as producer:
        queue = MessageQueue("Orders", "broker-a", 1)
        first = producer.send(Message("Orders", "first", keys=KEY, tags="A"))
        second = producer.send(Message("Payments", '{"sum": 5}', keys=[KEY, "PAY-1"]))
        plain = producer.send(Message("Orders", b"\x00plain"), queue=queue)
        return first, second, plain


@pytest.fixture
def find(run, rocketmq, sent):
    """Give ``find(*arguments) -> (exit code, answer)``."""

    def find_as_json(*arguments):
        done = run("find", *arguments, "--namesrv", rocketmq.name_server, "-o", "json")
        return done.code, json.loads(done.out)

    return find_as_json


def ids(answer):
    return [message["msg_id"] for message in answer["messages"]]


def test_a_key_in_another_case_is_told(run, rocketmq, sent):
    done = run("find", KEY.lower(), "--namesrv", rocketmq.name_server)
    assert done.code == 1
    assert f"nothing has the key order-1; {KEY} has 2 messages: case matters" in done.err
    done = run("find", "pay-2", "--namesrv", rocketmq.name_server)
    assert "case matters" not in done.err


def test_an_id_with_a_digit_missing_is_told(run, rocketmq, sent):
    text = sent[0].msg_id[1:]
    done = run("find", text, "--namesrv", rocketmq.name_server)
    assert done.code == 1
    said = f"a digit missing ({len(text)} of {len(text) + 1})"
    assert f"this looks like a message id with {said}\n" in done.err


def test_the_brokers_are_named_as_what_was_searched(find, rocketmq, sent):
    _, answer = find(KEY)
    brokers = [each["source"] for each in answer["coverage"] if each["kind"] == "broker"]
    assert brokers == [f"broker-a ({rocketmq.broker})"]


@pytest.mark.parametrize("command", ["find", "show", "story"])
def test_a_position_in_a_topic_that_is_not_there_names_the_one_probably_meant(
    run, rocketmq, sent, command
):
    done = run(command, "Ordres/0/0", "--namesrv", rocketmq.name_server)
    assert (done.code, done.out) == (1, "")
    assert "position: there is no topic 'Ordres'; did you mean Orders?" in done.err


@pytest.mark.parametrize("command", [("find", "K"), ("tail", "-t", "T"), ("send", "T", "b")])
def test_the_address_of_a_broker_is_not_that_of_a_name_server(run, rocketmq, sent, command):
    done = run(*command, "--namesrv", rocketmq.broker)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "is this the address of a broker, and not of a name server?" in done.err


def test_table_and_lines_are_those_of_a_store(run, rocketmq, sent):
    given = (KEY, "--topic", "Orders", "--namesrv", rocketmq.name_server)
    table = run("find", *given).out.splitlines()
    assert table[0].startswith("time\ttopic\t")
    assert sent[0].msg_id in table[1]
    (line,) = run("find", *given, "-o", "jsonl").out.splitlines()
    assert json.loads(line)["msg_id"] == sent[0].msg_id


def test_show_shows_it(run, rocketmq, sent):
    done = run("show", sent[1].msg_id, "--namesrv", rocketmq.name_server, "--body", "json")
    assert done.code == 0
    assert sent[1].offset_msg_id in done.out
    assert done.out.endswith('{\n  "sum": 5\n}\n')
    assert run("show", "nothing", "--namesrv", rocketmq.name_server).code == 1


def test_the_name_server_can_be_in_the_environment(run, rocketmq, sent, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq.name_server)
    assert run("find", KEY).code == 0
    assert run("show", sent[0].msg_id).code == 0


def test_a_store_counts_before_a_name_server_of_the_environment(run, write_store, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    store = write_store({"properties": {"KEYS": "k"}})
    assert run("find", "k", "--store", store).code == 0
    monkeypatch.setenv("ROCKETLENS_STORE", str(store))
    assert run("find", "k").code == 0


def test_a_name_server_that_is_given_counts_before_a_store_of_the_environment(
    run, rocketmq, sent, monkeypatch
):
    monkeypatch.setenv("ROCKETLENS_STORE", "/missing")
    assert run("find", KEY, "--namesrv", rocketmq.name_server).code == 0


def test_a_store_and_a_name_server_at_once_are_refused(run):
    done = run("find", "k", "--store", "/missing", "--namesrv", "127.0.0.1:1")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:99999", ";"])
def test_a_name_server_that_does_not_answer_is_one_line_and_code_2(run, address):
    for text in ("k", "00" * 16, "T/0/0"):
        done = run("find", text, "--namesrv", address)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_a_broker_that_is_gone_makes_the_answer_incomplete_and_is_named(run, tmp_path):
    with cluster(tmp_path) as running:
        with running.producer() as producer:
            result = producer.send(Message("Orders", "body", keys=KEY))
        running.kill_broker()
        position = f"Orders/{result.message_queue.queue_id}/0"
        for text in (KEY, result.msg_id, result.offset_msg_id, position):
            done = run("find", text, "--topic", "Orders", "--namesrv", running.name_server)
            assert (done.code, done.out) == (3, ""), text
            assert "failed: broker-a: " in done.err
            assert running.broker in done.err


def test_in_a_namespace_its_topics_are_found_and_no_others(run, rocketmq, sent):
    there = ("--namesrv", rocketmq.name_server, "--namespace", "shop")
    with rocketmq.producer(namespace="shop") as producer:
        own = producer.send(Message("Orders", "mine", keys=KEY))
    position = f"Orders/{own.message_queue.queue_id}/{own.queue_offset}"
    for words in ((KEY,), (KEY, "--topic", "Orders"), (position,), (own.offset_msg_id,)):
        done = run("find", *words, *there, "-o", "json")
        answer = json.loads(done.out)
        assert (done.code, ids(answer)) == (0, [own.msg_id]), words
        assert answer["messages"][0]["topic"] == "shop%Orders"
    assert run("find", sent[0].offset_msg_id, *there).code == 1
    done = run(
        "mqadmin", "--namespace", "shop", "queryMsgByKey", "-n", there[1], "-tOrders", "-kORDER-1"
    )
    assert (done.code, own.msg_id in done.out, sent[0].msg_id in done.out) == (0, True, False)
    done = run("send", "Orders", "x", *there)
    assert (done.code, "topic=Orders," in done.out) == (0, True)


def test_a_broker_that_was_stopped_is_missed_until_it_is_forgotten(run):
    with cluster() as rocketmq:
        with rocketmq.producer() as producer:
            producer.send(Message("Orders", "first", keys=KEY))
        given = ("--namesrv", rocketmq.name_server)
        assert run("find", KEY, *given).code == 0
        running = rocketmq._running
        running.thread.run(running.broker.stop())
        for text in (KEY, "00" * 16, "Orders/0/0"):
            done = run("find", text, *given)
            assert done.code == 3
            assert "broker-a: it was last seen 20" in done.err
            assert rocketmq.broker in done.err
        done = run("mqadmin", "queryMsgById", "-i", "00" * 16, "-n", rocketmq.name_server)
        assert done.code == 3
        assert "it was last seen" in done.err
        done = run("find", "--forget-broker", "broker-b", *given)
        assert (done.code, "; did you mean broker-a?" in done.err) == (2, True)
        assert run("find", "--forget-broker", "broker-a", *given).code == 0
        done = run("find", KEY, *given)
        assert done.code == 3
        assert "no broker is registered" in done.err
        assert "last seen" not in done.err
        done = run("find", "--forget-broker", "broker-a", *given)
        assert done.code == 2
        assert "broker-a: no broker of that name was seen" in done.err


def test_a_broker_of_a_store_cannot_be_forgotten(run, tmp_path):
    (tmp_path / "commitlog").mkdir()
    done = run("find", "k", "--forget-broker", "broker-a", "--store", tmp_path)
    assert (done.code, "--forget-broker needs a cluster" in done.err) == (2, True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class LateClock:
    """Two seconds go by between two looks."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 2.0
        return self.now_s


@pytest.mark.parametrize("options", [("-t", "Orders"), ("--since", "1h"), ("--where", "tag = 'A'")])
def test_a_search_by_time_shows_how_much_it_has_read(run, rocketmq, sent, monkeypatch, options):
    terminal = Terminal()
    late = SearchProgress(terminal, LateClock())
    monkeypatch.setattr("rocketlens.cli.find.SearchProgress", lambda: late)
    done = run("find", *options, "-n", rocketmq.name_server, "-o", "jsonl")
    assert done.code == 0
    shown = terminal.getvalue().split("\r")
    assert re.match(r"read \d messages, \d+, \d+/s; Ctrl-C stops", shown[1])
    assert shown[-1] == ""
    assert "Ctrl-C" not in done.out + done.err


@pytest.fixture
def own_process():
    """Ctrl-C as a program has it: Spark takes it for itself in a process that has used it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_once_found(monkeypatch, presses):
    """Press Ctrl-C so often when a queue with messages was read; the search then goes on."""
    read, read_in_order = QueueReader.read, QueueReader.read_in_order
    noticed = threading.Semaphore(0)

    async def press():
        for _ in range(presses):
            os.kill(os.getpid(), signal.SIGINT)
            if threading.current_thread() is not threading.main_thread():
                assert noticed.acquire(timeout=PATIENCE_S)
        await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)

    async def read_and_press(reader, *arguments):
        await read(reader, *arguments)
        if len(reader.findings.messages):
            await press()

    async def read_in_order_and_press(reader, *arguments):
        hand_on = reader.on_pull

        async def hand_on_and_press(*reached):
            is_first = bool(reader.findings._records) and not noticed.has_messages
            noticed.has_messages |= is_first
            await hand_on(*reached)
            if is_first:
                await press()
            elif noticed.has_messages:
                await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)

        reader.on_pull = hand_on_and_press
        await read_in_order(reader, *arguments)

    noticed.has_messages = False
    interrupt = SearchProgress._interrupt

    def note_and_interrupt(*arguments):
        noticed.release()
        interrupt(*arguments)

    monkeypatch.setattr(SearchProgress, "_interrupt", note_and_interrupt)
    monkeypatch.setattr(QueueReader, "read", read_and_press)
    monkeypatch.setattr(QueueReader, "read_in_order", read_in_order_and_press)


def found_in(done, output):
    messages = (
        json.loads(done.out)["messages"]
        if output == "json"
        else map(json.loads, done.out.splitlines())
    )
    return [each["msg_id"] for each in messages]


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_ctrl_c_shows_what_was_found_so_far_and_says_that_there_may_be_more(
    run, rocketmq, sent, monkeypatch, output
):
    interrupt_once_found(monkeypatch, presses=1)
    done = run("find", "-t", "Orders", "-n", rocketmq.name_server, "-o", output)
    assert done.code == 130
    found = found_in(done, output)
    assert found
    assert set(found) < {result.msg_id for result in sent}
    assert "INCOMPLETE" in done.err
    assert f"{rocketmq.name_server}: interrupted" in done.err
    assert "interrupted: this is what was found until then (exit code 130)" in done.err


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_second_ctrl_c_ends_the_program(run, rocketmq, sent, monkeypatch, output):
    interrupt_once_found(monkeypatch, presses=2)
    done = run("find", "-t", "Orders", "-n", rocketmq.name_server, "-o", output)
    assert (done.code, done.out, done.err) == (130, "", "")


@pytest.mark.parametrize("options", [(), ("--max", "5")])
def test_a_topic_is_not_missing_where_no_broker_is_registered(run, options):
    with cluster() as running:
        with running.producer() as producer:
            producer.send(Message("Orders", "x"))
        running._running.thread.run(running._running.broker.stop())
        done = run("find", "-t", "Orders", "-n", running.name_server, *options)
    assert (done.code, done.out) == (3, "")
    assert "no broker is registered" in done.err


# Rows come as they are found.


@pytest.fixture(scope="module")
def many():
    """A cluster with 2,000 messages of one topic in one queue."""
    with cluster() as running, running.producer() as producer:
        queue = MessageQueue("Many", "broker-a", 0)
        for number in range(0, 2000, 100):
            producer.send_batch(
                [Message("Many", b"%d" % (number + n)) for n in range(100)], queue=queue
            )
        yield running


class Reader(io.StringIO):
    """Notes how much was read from the cluster when the first row came, and goes away then."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def write(self, text):
        if text.count("\n") and not text.startswith("time"):
            self.count.append("row")
            raise BrokenPipeError
        return super().write(text)


@pytest.mark.parametrize("options", [("-o", "jsonl"), (), ("--since", "1h", "-o", "csv")])
def test_the_first_row_of_a_topic_does_not_wait_for_the_rest(run, many, monkeypatch, options):
    events = []
    pull = QueueReader._pull

    async def counted(reader, *arguments):
        events.append("pull")
        return await pull(reader, *arguments)

    monkeypatch.setattr(QueueReader, "_pull", counted)
    whole = run("find", "-t", "Many", "-n", many.name_server, *options)
    assert (whole.code, "2,000 messages, COMPLETE" in whole.err) == (0, True)
    assert events.count("pull") >= 2000 // 32
    events.clear()
    with redirect_stdout(Reader(events)):
        code = main(["find", "-t", "Many", "-n", many.name_server, *options])
    assert code == 0
    assert events.index("row") < 30


def test_rows_of_a_topic_are_in_the_order_of_their_store_times(run, many):
    done = run("find", "-t", "Many", "-n", many.name_server, "--format", "{body}")
    assert done.out.split() == [str(number) for number in range(2000)]


def test_a_search_that_streams_says_as_much_as_one_that_does_not(run, rocketmq, sent):
    for options in (
        ("-t", "Orders"),
        ("-t", "Orders,Payments", "--until", "2020-01-01"),
        ("--since", "2020-01-01"),
    ):
        given = ("find", *options, "-n", rocketmq.name_server)
        streamed = run(*given, "-o", "jsonl")
        whole = run(*given, "-o", "jsonl", "--max", "99999")
        assert (streamed.code, streamed.out, streamed.err) == (whole.code, whole.out, whole.err)
