"""The configuration of servers, and the program that builds the index beside a broker."""

from argparse import Namespace

import pytest

from rocketlens.broker.config import parse_settings
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
        (("--bind", "0.0.0.0"), "", "told 0.0.0.0, which is no machine's: name the address"),
        (("--bind", "::"), "", "told ::, which is no machine's"),
        (("--advertise", "0.0.0.0"), "", "told 0.0.0.0"),
        ((), "bindAddress=0.0.0.0", "listen on 0.0.0.0 and tell clients .* to use 127.0.0.1"),
        ((), "bindAddress=10.0.0.5", "listen on 10.0.0.5 and tell clients .* to use 127.0.0.1"),
        (("--bind", "0.0.0.0", "--advertise", "::1"), "", "to use ::1"),
        ((), "bindAddress=0.0.0.0\nbrokerIP1=127.0.0.2", "to use 127.0.0.2"),
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
