"""Scripts that complete command lines, and the words that they ask for."""

import shutil
import subprocess
import sys

import pytest

from rocketlens.testing import cluster


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


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh"])
def test_other_shells_have_a_script(run, shell):
    done = run("completion", shell)
    assert done.code == 0
    assert "topics" in done.out


def test_topics_of_a_cluster_are_words(run):
    with cluster() as running, running.producer() as producer:
        from rocketlens import Message

        producer.send(Message("Orders", b"body"))
        done = run("completion", "--words", "topics", "--", "find", "-n", running.name_server, "-t")
    assert (done.code, done.err) == (0, "")
    assert "Orders" in done.out.split()


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
            env={"HOME": str(home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
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
        *("debug", "info", "warning", "error"),
    ]
    assert proposed(script, "rocketlens serve --sinc") == []
    (tmp_path / "stores").mkdir()
    assert proposed(script, f"rocketlens find --store {tmp_path}/st") == [f"{tmp_path}/stores/"]
    store = golden("5.5.0").store
    assert proposed(script, f"rocketlens find --store {store} -t Pay") == ["PayTopic"]
