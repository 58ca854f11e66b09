"""The configuration of servers, and the program that builds the index beside a broker.

What others say is one line of the servers' log, and nothing that a terminal obeys.
"""

import io
import json
import logging
import sys
import threading
from argparse import Namespace

import pytest

from rocketlens import limits
from rocketlens.broker.config import parse_settings
from rocketlens.cli.servers.log_lines import (
    EscapingFormatter,
    JsonFormatter,
    LineBudget,
    LineWriter,
    log_to_stderr,
)
from rocketlens.cli.servers.servers import broker_settings, configuration_text, index_command
from rocketlens.errors import BadInput
from rocketlens.limits import MAX_SERVER_CONFIG_BYTES
from rocketlens.main import build_parser


def test_no_file_is_an_empty_configuration():
    assert configuration_text(None) == ""


def test_a_configuration_is_read_without_its_byte_order_mark(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_bytes(b"\xef\xbb\xbfbrokerName=\xc3\xa9")
    assert configuration_text(str(file)) == "brokerName=é"


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xff=1", "not UTF-8"), (bytes(MAX_SERVER_CONFIG_BYTES + 1), "not a configuration file")],
)
def test_a_file_that_is_not_a_configuration_is_refused(tmp_path, content, said):
    file = tmp_path / "broker.conf"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=said):
        configuration_text(str(file))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("listenPort=x", "listenPort 'x' is not a whole number: give 0 to 65535"),
        ("listenPort = 70000", "listenPort 70000: give 0 to 65535"),
        ("traceOn=yes", "traceOn 'yes' is neither true nor false"),
        ("deleteWhen=25", "deleteWhen '25': hours are 00 to 23"),
        ("brokerId=1", "brokerId 1: give 0; this broker cannot be a slave"),
        ("lisenPort=1", "lisenPort is not a key of RocketMQ; did you mean listenPort?"),
        ("tls.server.mode=x", "tls.server.mode 'x': give"),
    ],
)
def test_an_error_about_a_key_begins_with_the_file_and_the_line(run, tmp_path, line, said):
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=a\n# {line}\n{line}\n")
    done = run("broker", "-n", "127.0.0.1:1", "-c", conf, "--home", tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"{conf}, line 3: {said}" in done.err
    if line.startswith("listenPort"):
        done = run("namesrv", "-c", conf)
        assert f"{conf}, line 3: {said}" in done.err


def test_an_error_about_an_option_names_no_line(run, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPort=5000\n")
    done = run("broker", "-n", "127.0.0.1:1", "-c", conf, "--home", tmp_path, "--port", "1")
    assert done.code == 2
    assert done.err == "rocketlens: listenPort 1: the port two below is needed, too\n"


def test_a_path_with_a_zero_character_is_refused():
    with pytest.raises(BadInput, match="--config has a zero character"):
        configuration_text("a\0b")


def test_the_index_builder_is_started_with_options_that_it_knows(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.pipeline.session.check_available", lambda **_: None)
    settings = parse_settings(f"storePathRootDir={tmp_path}\nmaxIndexNum=700\n")
    arguments = Namespace(index_builder="auto", master="local[1]")
    _, _, _, module, *words = index_command(arguments, settings)
    follow = build_parser(words).parse_args(words)
    assert module == "rocketlens.main"
    assert (follow.store, follow.entries, follow.master) == (str(tmp_path), 700, "local[1]")
    assert follow.until_stdin_ends


def test_a_broker_that_builds_its_index_itself_starts_no_program(tmp_path):
    settings = parse_settings(f"storePathRootDir={tmp_path}\n")
    assert index_command(Namespace(index_builder="inline", master="local[*]"), settings) == ()


def settings_of(*words, conf=None):
    arguments = build_parser(["broker"]).parse_args(["broker", *map(str, words)])
    arguments.config = conf
    return broker_settings(arguments)


@pytest.mark.parametrize(
    ("words", "listens", "advertises"),
    [
        ((), "127.0.0.1", "127.0.0.1"),
        (("--bind", "10.0.0.5"), "10.0.0.5", "10.0.0.5"),
        (("--bind", "0.0.0.0", "--advertise", "10.0.0.5"), "0.0.0.0", "10.0.0.5"),
        (("--bind", "::", "--advertise", "2001:db8::5"), "::", "2001:db8::5"),
        (("--advertise", "10.0.0.5"), "10.0.0.5", "10.0.0.5"),
        (("--bind", "127.0.0.1", "--advertise", "10.0.0.5"), "127.0.0.1", "10.0.0.5"),
    ],
)
def test_where_a_broker_listens_and_what_it_tells_clients(words, listens, advertises):
    broker = settings_of(*words).broker
    assert (broker.listen_address, broker.brokerIP1) == (listens, advertises)


@pytest.mark.parametrize(
    ("words", "conf", "said"),
    [
        (("--bind", "0.0.0.0"), "", "get 0.0.0.0, which is not a machine's address: name"),
        (("--bind", "::"), "", "get ::, which is not a machine's address"),
        (("--advertise", "0.0.0.0"), "", "get 0.0.0.0"),
        ((), "bindAddress=0.0.0.0", "listen on 0.0.0.0, but clients .* would get 127.0.0.1"),
        ((), "bindAddress=10.0.0.5", "listen on 10.0.0.5, but clients .* would get 127.0.0.1"),
        (("--bind", "0.0.0.0", "--advertise", "::1"), "", "get ::1"),
        ((), "bindAddress=0.0.0.0\nbrokerIP1=127.0.0.2", "get 127.0.0.2"),
    ],
)
def test_an_address_that_leads_clients_astray_is_refused(tmp_path, words, conf, said):
    file = tmp_path / "broker.conf"
    file.write_text(conf)
    with pytest.raises(BadInput, match=said):
        settings_of(*words, conf=str(file))


def test_a_name_to_advertise_is_resolved_and_one_without_an_address_is_refused(run, tmp_path):
    assert settings_of("--advertise", "localhost").broker.brokerIP1 == "127.0.0.1"
    done = run("serve", "--home", tmp_path, "--advertise", "no.such.host.invalid")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "no.such.host.invalid" in done.err


def test_serve_and_broker_keep_their_store_in_the_same_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for command in ("serve", "broker"):
        arguments = build_parser([command]).parse_args([command])
        assert broker_settings(arguments).store_path == tmp_path / "rocketlens" / "store"
    assert settings_of("--home", tmp_path / "a").store_path == tmp_path / "a" / "store"


def test_a_store_in_the_default_directory_of_rocketmq_is_not_passed_over(
    run, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    done = run("broker", "-n", "127.0.0.1:9876")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"choose with --home {tmp_path}" in done.err
    assert not (tmp_path / "rocketlens").exists()


@pytest.mark.parametrize("command", ["serve", "broker", "namesrv"])
def test_the_configuration_in_effect_is_printed_and_nothing_is_started(
    run, tmp_path, monkeypatch, command
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    conf = tmp_path / "a.conf"
    conf.write_text("listenPort=20911\n")
    done = run(command, "-c", conf, "--bind", "127.0.0.1", "--print-config")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert {"listenPort=20911", "bindAddress=127.0.0.1"} <= set(lines)
    if command != "namesrv":
        assert f"storePathRootDir={tmp_path / 'rocketlens' / 'store'}" in lines
    # What is printed can be read again.
    if command == "broker":
        conf.write_text(done.out)
        assert run(command, "-c", conf, "--print-config").out == done.out
    assert list(tmp_path.iterdir()) == [conf]


def test_a_broker_without_a_name_server_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    done = run("broker")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "name server" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_broker_builds_its_index_itself_unless_told_otherwise():
    assert build_parser(["broker"]).parse_args(["broker"]).index_builder == "inline"
    assert build_parser(["serve"]).parse_args(["serve"]).index_builder == "auto"


@pytest.mark.parametrize("port", ["-1", "65536", "x", "9" * 5000])
def test_a_number_that_is_not_a_port_is_refused(run, port):
    done = run("namesrv", f"--port={port}")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "expected 0 to 65535" in done.err


def test_a_configuration_file_that_is_missing_is_one_line_and_code_2(run, tmp_path):
    done = run("namesrv", "-c", tmp_path / "namesrv.conf")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "namesrv.conf" in done.err


FORGED = "no\n2026-01-01 00:00:00,000 ERROR rocketlens.broker: forged"


def record_of(words, *values, name="rocketlens.x", level=logging.WARNING, error=None):
    return logging.LogRecord(name, level, "f", 1, words, values, error)


@pytest.mark.parametrize("form", [EscapingFormatter, JsonFormatter])
@pytest.mark.parametrize(
    "said", [FORGED, "a\rb", "\x1b[2J", "\x07", "\u061c", "\u200b", "\u2028", "\x9b", "\ud800"]
)
@pytest.mark.parametrize("words", ["name server %s cannot be told", "%s"])
def test_a_message_is_one_line_without_anything_that_is_obeyed_or_hides(said, words, form):
    line = form().format(record_of(words, said))
    assert line.isprintable()
    assert line.encode()
    if form is JsonFormatter:
        expected = words % said.encode("utf-8", "backslashreplace").decode()
        assert json.loads(line)["message"] in (words % said, expected)
    else:
        assert line.endswith(words % said.encode("unicode_escape").decode())


def test_a_traceback_keeps_its_lines_and_nothing_else():
    try:
        int("\x1b[31mred\x9b")
    except ValueError:
        record = record_of("it %s", "failed", level=logging.ERROR, error=sys.exc_info())
    lines = EscapingFormatter().format(record).split("\n")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1].startswith("ValueError: invalid literal")
    assert all(line.isprintable() for line in lines)
    in_json = JsonFormatter().format(record)
    assert in_json.isprintable()
    assert "ValueError: invalid literal" in json.loads(in_json)["exception"]


@pytest.mark.parametrize(
    ("name", "area"),
    [
        ("rocketlens.store.write.cleaner", "store"),
        ("rocketlens.broker", "broker"),
        ("asyncio", "asyncio"),
    ],
)
def test_a_line_has_the_time_in_utc_its_level_and_where_it_is_from(name, area):
    record = record_of("said %d", 1, name=name, level=logging.INFO)
    record.created = 1_795_295_636.674
    assert (
        EscapingFormatter().format(record) == f"2026-11-21T21:13:56.674+00:00 INFO  {area}: said 1"
    )
    assert json.loads(JsonFormatter().format(record)) == {
        "time": "2026-11-21T21:13:56.674+00:00",
        "level": "info",
        "area": area,
        "message": "said 1",
    }


def test_lines_that_differ_in_their_values_only_are_bounded_and_the_others_counted(monkeypatch):
    monkeypatch.setattr(limits, "MAX_LIKE_LOG_LINES", 2)
    now = [0.0]
    budget = LineBudget(lambda: now[0])
    shown = [budget.filter(record_of("client %d 100 %%", number)) for number in range(5)]
    assert shown == [True, True, False, False, False]
    assert budget.filter(record_of("another"))
    assert all(budget.filter(record_of("client", level=logging.ERROR)) for _ in range(5))
    now[0] = 10.0
    record = record_of("client %d 100 %%", 5)
    assert budget.filter(record)
    assert record.getMessage() == "client 5 100 % (3 like it before it are not shown)"
    assert budget.filter(record := record_of("client %d 100 %%", 6))
    assert record.getMessage() == "client 6 100 %"


class Unread(io.StringIO):
    """A stream like a full pipe: it takes nothing before it is read."""

    def __init__(self):
        super().__init__()
        self.is_waiting = threading.Event()
        self.is_read = threading.Event()

    def write(self, text):
        self.is_waiting.set()
        self.is_read.wait()
        return super().write(text)


def test_a_log_that_is_not_read_holds_up_no_server_and_lost_lines_are_counted(monkeypatch):
    monkeypatch.setattr(limits, "MAX_WAITING_LOG_LINES", 3)
    stream = Unread()
    writer = LineWriter(stream)
    writer.setFormatter(logging.Formatter("%(message)s"))
    writer.emit(record_of("first"))
    stream.is_waiting.wait()
    for number in range(5):
        writer.emit(record_of("line %d", number))
    stream.is_read.set()
    writer.flush()
    writer.emit(record_of("last"))
    writer.flush()
    lost = " (2 lines before it are lost: they were not read in time)"
    assert stream.getvalue().splitlines() == ["first", "line 0", "line 1", "line 2", f"last{lost}"]


def test_a_closed_stream_ends_nothing():
    stream = io.StringIO()
    stream.close()
    writer = LineWriter(stream)
    writer.emit(record_of("unheard"))
    writer.flush()


def test_a_word_in_the_environment_that_is_neither_level_nor_format_is_refused(monkeypatch):
    monkeypatch.setenv("ROCKETLENS_LOG", "debug, loud")
    with pytest.raises(BadInput, match="ROCKETLENS_LOG: 'loud' is neither a level"):
        log_to_stderr(Namespace(log_level=None, log_format=None))
