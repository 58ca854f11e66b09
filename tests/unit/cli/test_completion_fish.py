"""The script for fish: its lines, and what fish proposes with it."""

import argparse
import shutil
import subprocess
import sys

import pytest

from rocketlens.cli.completion_fish import fish_script


def lines_of(parser, kind_of=lambda _: None):
    """The lines of a script behind its functions."""
    return fish_script(parser, kind_of).split("complete -c rocketlens -f\n")[1].splitlines()


def test_an_option_has_all_its_names_its_help_and_its_values():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-q", "--quiet", action="store_true", help="say\n  nothing 100%%")
    parser.add_argument("-o", choices=("a", "b"), default="a", help="it's %(default)s \\ b")
    parser.add_argument("-old", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("text", help="nothing to propose")
    begin = "complete -c rocketlens -n '__rocketlens_behind \\'\\'' "
    assert lines_of(parser) == [
        f"{begin}-s q -l quiet -d 'say nothing 100%'",
        f"{begin}-s o -x -a 'a b' -d 'it\\'s a \\\\ b'",
    ]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (None, "-x"),
        ("FILE", "-r -F"),
        ("DIR", "-x -a '(__fish_complete_directories)'"),
        ("topics", "-x -a '(__rocketlens_words topics)'"),
        ("contexts", "-x -a '(__rocketlens_words contexts)'"),
    ],
)
def test_a_value_is_of_its_kind(kind, values):
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-old", help="text")
    (line,) = lines_of(parser, lambda _: kind)
    assert line.endswith(f"-o old {values} -d 'text'")


def test_commands_stand_behind_their_group_and_options_behind_their_command():
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_subparsers().add_parser("index", help="the index", add_help=False)
    build = group.add_subparsers().add_parser("build", help="build it", add_help=False)
    build.add_argument("--force", action="store_true", help="all of it")
    build.add_argument("store", help="where it is")
    begin = "complete -c rocketlens -n"
    build_only = "'__rocketlens_in \\'index build\\''"
    assert lines_of(parser, lambda action: "DIR" if action.dest == "store" else None) == [
        f"{begin} '__rocketlens_behind \\'\\'' -a index -d 'the index'",
        f"{begin} '__rocketlens_behind \\'index\\'' -a build -d 'build it'",
        f"{begin} {build_only} -l force -d 'all of it'",
        f"{begin} {build_only} -a '(__fish_complete_directories)' -d 'where it is'",
    ]


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
        *("debug", "error", "info", "warning"),
    ]
    assert proposed(script, "rocketlens serve --sinc") == []
    (tmp_path / "stores").mkdir()
    assert proposed(script, f"rocketlens find --store {tmp_path}/st") == [f"{tmp_path}/stores/"]
    store = golden("5.5.0").store
    assert proposed(script, f"rocketlens find --store {store} -t Pay") == ["PayTopic"]
