"""Options that several commands have, and scripts that complete command lines."""

import os
import shutil
import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

import pytest

from rocketlens import Message
from rocketlens.cli.options import (
    add_source,
    add_store,
    port_number,
    positive_number,
    store_directory,
)
from rocketlens.cli.source import ChosenSource, choose_source
from rocketlens.errors import BadInput
from rocketlens.testing import cluster
from rocketlens.wire.bodies.tables import SubscriptionGroupConfig


def completed(script, line, tmp_path):
    """Return what bash proposes for the last word of a line."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    program = tmp_path / "rocketlens"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketlens.main "$@"\n')
    program.chmod(0o755)
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in ("rocketlens", *words))
    done = subprocess.run(
        [bash],
        input=f"{script}\nPATH={tmp_path}:$PATH\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words)}\n"
        f"_shtab_rocketlens rocketlens '{words[-1]}' ''\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n',
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_bash_completes_commands_options_choices_and_topics(run, golden, tmp_path):
    script = run("completion", "bash")
    assert (script.code, script.err) == (0, "")
    assert completed(script.out, "to", tmp_path) == ["topics"]
    assert completed(script.out, "index ", tmp_path) == ["build", "follow", "verify"]
    assert completed(script.out, "serve --log-l", tmp_path) == ["--log-level"]
    store = golden("5.5.0").store
    assert "PayTopic" in completed(script.out, f"find --store {store} -t Pay", tmp_path)
    assert completed(script.out, "mqadmin queryMsgByK", tmp_path) == ["queryMsgByKey"]
    assert completed(script.out, f"groups --store {store} golden", tmp_path) == ["golden_cg"]


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh"])
def test_other_shells_have_a_script(run, shell):
    done = run("completion", shell)
    assert done.code == 0
    assert "topics" in done.out


def words_of(run, kind, *line):
    done = run("completion", "--words", kind, "--", *line)
    assert (done.code, done.err) == (0, "")
    return done.out.split()


def test_topics_and_groups_of_a_cluster_are_words(run):
    with cluster() as running, running.producer() as producer, running.admin() as admin:
        producer.send(Message("Orders", b"body"))
        admin.create_and_update_subscription_group(SubscriptionGroupConfig(group_name="cg"))
        host, port = running.name_server.split(":")
        for address in ([running.name_server], [host, ":", port]):
            line = ["-n", *address]
            assert "Orders" in words_of(run, "topics", "find", *line, "-t", "")
            assert "Orders" in words_of(run, "mqadmin", "topicStatus", *line, "-t", "Or")
            assert "cg" in words_of(run, "groups", "groups", *line, "")
            assert "cg" in words_of(run, "mqadmin", "consumerProgress", *line, "-g", "")


def test_commands_of_mqadmin_their_options_and_jobs_are_words(run, monkeypatch, tmp_path):
    assert "queryMsgByKey" in words_of(run, "mqadmin", "mqadmin", "-n", "a:1", "query")
    assert {"-k", "-t"} <= {*words_of(run, "mqadmin", "mqadmin", "queryMsgByKey", "-")}
    assert words_of(run, "mqadmin", "mqadmin", "queryMsgByKey", "-k", "") == []
    monkeypatch.setattr("rocketlens.cli.completion.jobs_directory", lambda: tmp_path)
    (tmp_path / "20261128-1.job").touch()
    assert words_of(run, "jobs", "job", "show", "") == ["20261128-1"]


def test_words_that_cannot_be_had_are_none_and_no_complaint(run, tmp_path):
    for line in (["find", "--store", tmp_path, "-t"], ["find", "-n", "x:y:z", "-t"], []):
        done = run("completion", "--words", "topics", "--", *line)
        assert (done.code, done.out, done.err) == (0, "", "")


def test_contexts_are_words_and_what_a_shell_would_obey_is_not(run, tmp_path, monkeypatch):
    file = tmp_path / "config.toml"
    file.write_text(
        '[contexts.prod]\nnamesrv = "a:1"\n[contexts."$(rm -rf x)"]\nnamesrv = "a:1"\n'
        '[contexts."a b"]\nnamesrv = "a:1"\n'
    )
    file.chmod(0o600)
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(file))
    done = run("completion", "--words", "contexts", "--", "find", "--context", "")
    assert done.out == "prod\n"


def test_an_unknown_shell_is_refused(run):
    for words in ((), ("ksh",)):
        done = run("completion", *words)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert "bash, zsh, fish, tcsh" in done.err


@pytest.fixture(scope="module")
def proposed(tmp_path_factory):
    """Return ``proposed(script, line)``: what fish proposes for the last word of a line."""
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("needs fish")
    home = tmp_path_factory.mktemp("fish")
    program = home / "rocketlens"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketlens.main "$@"\n')
    program.chmod(0o755)

    def propose(script, line):
        (home / "script.fish").write_text(script)
        done = subprocess.run(
            [
                *(fish, "--no-config", "-c"),
                "set -x PATH $argv[1] $PATH; source $argv[1]/script.fish; complete -C $argv[2]",
                *(str(home), line),
            ],
            env={"HOME": str(home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
            | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return [each.split("\t")[0] for each in done.stdout.splitlines()]

    return propose


def test_fish_completes_commands_options_choices_directories_and_topics(
    run, golden, proposed, tmp_path
):
    script = run("completion", "fish").out
    assert proposed(script, "rocketlens to") == ["topics"]
    assert proposed(script, "rocketlens index ") == ["build", "follow", "verify"]
    assert proposed(script, "rocketlens index verify --sto") == ["--store"]
    assert proposed(script, "rocketlens serve --log-level ") == [
        *("debug", "info", "warning", "error")
    ]
    assert proposed(script, "rocketlens serve --sinc") == []
    (tmp_path / "stores").mkdir()
    assert proposed(script, f"rocketlens find --store {tmp_path}/st") == [f"{tmp_path}/stores/"]
    store = golden("5.5.0").store
    assert proposed(script, f"rocketlens find --store {store} -t Pay") == ["PayTopic"]
    assert proposed(script, f"rocketlens groups --store {store} golden") == ["golden_cg"]
    assert proposed(script, "rocketlens mqadmin queryMsgByK") == ["queryMsgByKey"]


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [(positive_number, "1", 1), (positive_number, "2147483647", 2**31 - 1), (port_number, "0", 0)],
)
def test_a_number_in_its_range_is_taken(kind, text, number):
    assert kind(text) == number


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "x", "٣", "2147483648", "9" * 5000])
def test_what_is_not_a_positive_number_is_refused(text):
    with pytest.raises(ArgumentTypeError, match=r"invalid number .*: expected 1 to 2147483647"):
        positive_number(text)


@pytest.mark.parametrize("text", ["65536", "-1", "x", "9" * 5000, "0" * 30 + "99999"])
def test_what_is_not_a_port_is_refused(text):
    with pytest.raises(ArgumentTypeError, match=r"invalid port .*: expected 0 to 65535"):
        port_number(text)


def test_an_option_names_the_store_before_the_environment(monkeypatch):
    monkeypatch.setenv("ROCKETLENS_STORE", "/of/the/environment")
    parser = ArgumentParser()
    add_store(parser)
    assert store_directory(parser.parse_args([])) == Path("/of/the/environment")
    assert store_directory(parser.parse_args(["--store", "/given"])) == Path("/given")


def test_without_a_store_the_message_says_how_to_name_one():
    with pytest.raises(BadInput, match=r"--store DIR.*ROCKETLENS_STORE"):
        store_directory(Namespace(store=None))
    with pytest.raises(BadInput, match="zero character"):
        store_directory(Namespace(store="a\0b"))


def given(*words):
    parser = ArgumentParser()
    add_source(parser)
    return parser.parse_args(words)


def test_a_store_of_the_environment_is_searched(monkeypatch):
    monkeypatch.setenv("ROCKETLENS_STORE", "/the/store")
    assert choose_source(given()) == ChosenSource(store=Path("/the/store"))


def test_a_name_server_makes_it_a_cluster():
    access = choose_source(given("--namesrv", "127.0.0.1:9876", "--namespace", "shop")).cluster
    assert (access.name_servers, access.namespace) == ("127.0.0.1:9876", "shop")


def test_without_either_the_message_names_both():
    with pytest.raises(BadInput, match=r"--store DIR.*--namesrv ADDR"):
        choose_source(given())
