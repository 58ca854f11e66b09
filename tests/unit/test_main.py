"""The program as a whole: exit codes, pipes, and what it says when something goes wrong."""

import argparse
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rocketlens
from rocketlens import main as program
from rocketlens.errors import AnswerIncomplete, MessageNotFound, SparkUnavailable, StoreLocked
from rocketlens.model.answer import Answer

FULL = Path("/dev/full")
COMMANDS = ("find", "show", "index", "doctor", "demo")


def process(*arguments, code="import sys; from rocketlens.main import main; sys.exit(main())"):
    return [sys.executable, "-c", code, *map(str, arguments)]


@pytest.fixture
def failing(monkeypatch):
    """Give ``failing(error)``, after which every command raises it."""

    def fail_with(error):
        class Command:
            @staticmethod
            def add_arguments(_parser):
                pass

            @staticmethod
            def run(_arguments):
                raise error

        monkeypatch.setattr(program, "import_module", lambda _name: Command)

    return fail_with


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MessageNotFound("not there"), 1),
        (StoreLocked("not now"), 2),
        (SparkUnavailable("install a JDK"), 2),
        (AnswerIncomplete("could not look", Answer("q", (), ())), 3),
        (OSError(5, "Input/output error", "/some/file"), 2),
        (OSError("odd"), 2),
        (RuntimeError("a bug"), 2),
        (RecursionError("deep"), 2),
        (MemoryError(), 2),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 0),
    ],
)
def test_every_error_becomes_a_code_and_at_most_one_line(run, failing, error, code):
    failing(error)
    done = run("doctor")
    assert (done.code, done.out) == (code, "")
    assert done.err.count("\n") == (code not in (0, 130))
    assert "Traceback" not in done.err


def test_an_error_of_the_system_names_the_file(run, failing):
    failing(PermissionError(13, "Permission denied", "/data/store/commitlog"))
    assert run("doctor").err == "rocketlens: /data/store/commitlog: Permission denied\n"


def test_a_bug_can_be_seen_whole(run, failing, monkeypatch):
    monkeypatch.setenv("ROCKETLENS_DEBUG", "1")
    failing(RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        run("doctor")


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_is_that_of_the_package(run, option):
    done = run(option)
    assert (done.code, done.out) == (0, f"rocketlens {rocketlens.__version__}\n")


def test_it_is_a_module_that_can_be_run():
    done = subprocess.run(
        [sys.executable, "-m", "rocketlens", "-V"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"rocketlens {rocketlens.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "same_as"),
    [
        ((), ("--help",)),
        (("index",), ("index", "--help")),
        (("help",), ("--help",)),
        (("help", "index"), ("index", "--help")),
        (("help", "index", "build"), ("index", "build", "--help")),
    ],
)
def test_nothing_and_help_print_the_help(run, arguments, same_as):
    done = run(*arguments)
    assert (done.code, done.err) == (0, "")
    assert done.out == run(*same_as).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tpics",), "no command 'tpics'; did you mean topics? (see rocketlens --help)"),
        (("serch",), "no command 'serch'; did you mean find or serve?"),
        (("search", "x"), "no command 'search'; did you mean find?"),
        (("ls",), "no command 'ls'; did you mean topics?"),
        (("lag",), "no command 'lag'; did you mean groups?"),
        (("profile",), "no command 'profile'; did you mean context?"),
        (("replay",), "no command 'replay'; did you mean resend?"),
        (("index", "verfy"), "no command 'index verfy'; did you mean index verify"),
        (("help", "shwo"), "no command 'shwo'; did you mean show"),
        (("--store", "d5", "find", "x"), "--store must follow a command"),
        (
            ("find", "x", "--since=1", "--untl", "2"),
            "unrecognized arguments: --untl 2; did you mean --until or --tls? (see",
        ),
        (("find", "x", "y"), "x y is not one text: quote it if it has blanks"),
        (("find", "x", "topic:a", "-t", "b"), "topic: in TEXT and --topic mean the same"),
    ],
)
def test_a_mistake_is_told_with_what_may_be_meant(run, arguments, said):
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"rocketlens: {said}")


def test_what_other_tools_call_a_command_is_none_here_and_stands_for_one_that_is():
    commands = set(program._COMMANDS)
    assert not commands & set(program._SYNONYMS)
    assert commands >= set(program._SYNONYMS.values())


@pytest.mark.parametrize(
    ("command", "word", "meant"),
    [
        ("find", "--from", "--since"),
        ("find", "--to", "--until"),
        ("find", "--limit", "--max"),
        ("find", "--query", "--where"),
        ("tail -t T", "--count", "--max"),
        ("resend", "--newest", "--max"),
        ("console", "--listen", "--bind"),
        ("topics", "--name-server", "--namesrv"),
        ("send T", "--nameserver", "--namesrv"),
    ],
)
def test_an_option_of_other_tools_stands_for_what_this_command_has(run, command, word, meant):
    done = run(*command.split(), word, "7")
    assert (done.code, done.out) == (2, "")
    assert f"{word}" in done.err
    assert f"; did you mean {meant}? (see" in done.err


def test_an_option_stands_for_none_that_the_command_lacks(run):
    assert "did you mean" not in run("topics", "--from", "7").err
    assert "did you mean" not in run("context", "list", "--query", "x").err


def test_whatever_prints_a_table_prints_csv():
    for words, parser in leaf_commands().items():
        for action in parser._actions:
            choices = tuple(action.choices or ()) if not isinstance(action.choices, dict) else ()
            assert "table" not in choices or "csv" in choices, words


def leaf_commands():
    parsers = dict(commands_and_parsers(program.build_parser()))
    return {
        words: parser for words, parser in parsers.items() if not dict(commands_and_parsers(parser))
    }


def test_every_command_has_examples_that_it_accepts():
    for words, parser in leaf_commands().items():
        _, _, text = parser.format_help().partition("\nexamples:\n")
        lines = text.partition("\n\n")[0].splitlines()
        examples = [line.strip() for line in lines if not line.lstrip().startswith("#")]
        assert 1 <= len(examples) <= 5, words
        assert len(lines) == 2 * len(examples), words
        for line in examples:
            typed = itertools.takewhile(
                lambda word: word not in {"|", "&&", "<"}, shlex.split(line)
            )
            name, *arguments = (word for word in typed if not word.startswith("ROCKETLENS_STORE="))
            assert name == "rocketlens"
            assert tuple(arguments[: len(words)]) == words, line
            parser.parse_args(arguments[len(words) :])


def test_the_options_of_a_connection_are_folded_in_the_usage_line(run):
    usage, _, details = run("find", "--help").out.partition("\n\n")
    assert usage.endswith("[connection options]")
    assert "--access-key" not in usage
    assert "--access-key KEY" in details


def test_help_names_every_command_and_the_exit_codes(run):
    done = run("--help")
    assert done.code == 0
    for word in (*COMMANDS, "0 found", "3 incomplete"):
        assert word in done.out


@pytest.mark.parametrize(
    "arguments",
    [("nonsense",), ("index", "x"), ("find", "k", "--nonsense"), ("find", "k", "--sto", "x")],
)
def test_wrong_usage_gives_one_line_and_code_2(run, arguments):
    done = run(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_a_closed_pipe_is_no_error(golden):
    store = golden("5.5.0").store
    finding = subprocess.Popen(
        process("find", "--since", "0", "--store", store, "-o", "jsonl"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert finding.stdout.readline()
    finding.stdout.close()
    said = finding.stderr.read()
    finding.stderr.close()
    assert (finding.wait(), said) == (0, b"")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_stdout_is_said(golden):
    with FULL.open("wb") as full:
        done = subprocess.run(
            process("find", "--since", "0", "--store", golden("5.5.0").store),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_process_without_its_streams_keeps_its_exit_code(golden, closed):
    command = shlex.join(process("find", "Aa", "--store", golden("5.5.0").store))
    done = subprocess.run(
        f"{command} {closed}", shell=True, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "COMPLETE" not in done.stdout


def test_an_interrupt_is_quiet(golden):
    # The command itself sends the signal, once it runs, so the test waits for nothing. A shell's
    # background jobs ignore the signal, and what they start does, too.
    code = (
        "import os, signal, sys; import rocketlens.cli.find as find;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from rocketlens.main import main;"
        "find.run = lambda _: os.kill(os.getpid(), signal.SIGINT) or signal.pause();"
        "sys.exit(main())"
    )
    done = subprocess.run(
        process("find", "k", code=code), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")


def test_an_argument_that_is_no_text_can_be_asked_for(golden):
    store = golden("5.5.0").store
    for output in ("table", "json"):
        done = subprocess.run(
            [*process("find"), b"caf\xe9", "--store", store, "-o", output],
            capture_output=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr


def test_a_locale_without_unicode_is_no_error(golden):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    for output in ("table", "json", "jsonl"):
        done = subprocess.run(
            process("find", "Aa", "--store", golden("5.5.0").store, "-o", output),
            capture_output=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()


def test_finding_by_id_or_key_loads_nothing_heavy(golden):
    store = golden("5.5.0").store
    heavy = {
        *("pandas", "pyarrow", "pyspark", "rich", "asyncio", "email", "socket", "ssl"),
        *("subprocess", "tempfile", "unittest", "multiprocessing", "logging", "numpy"),
        *("rocketlens.model.sql92", "rocketlens.model.topic", "rocketlens.model.group"),
    }
    # What measures how much of the code is reached, is there before.
    code = (
        "import sys; before = {*sys.modules}; from rocketlens.main import main; code = main();"
        "print(*{*sys.modules} - before, file=sys.stderr); sys.exit(code)"
    )
    sent = golden("5.5.0").sent[0]
    for text in (sent["offset_msg_id"], sent["msg_id"], sent["keys"], "PayTopic/0/0"):
        done = subprocess.run(
            process("find", text, "--store", store, code=code),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert heavy & set(done.stderr.split()) == set()


def commands_and_parsers(parser):
    """The words of each command that a parser knows, and its parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, command in action.choices.items():
                yield (word,), command
                for words, below in commands_and_parsers(command):
                    yield (word, *words), below


def test_help_loads_the_command_it_is_about_and_nothing_heavy():
    # One process for all: help that loads something is seen whichever command it belongs to.
    code = (
        "import json, sys; before = {*sys.modules} - {'json'}; from rocketlens.main import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    assert main([*words, '--help']) == 0, words\n"
        "    loaded = {*sys.modules} - before\n"
        "    print(*words, '>', *loaded, file=sys.stderr)\n"
    )
    asked = [(), *dict(commands_and_parsers(program.build_parser()))]
    done = subprocess.run(
        process(json.dumps(asked), code=code), capture_output=True, text=True, check=True
    )
    loaded = {}
    for line in done.stderr.splitlines():
        words, _, names = line.partition(">")
        loaded[words.strip()] = set(names.split())
    assert len(loaded) == len(asked)
    heavy = {"numpy", "ctypes", "subprocess", "asyncio", "logging", "socket", "ssl", "orjson"}
    engines = ("query", "store", "client", "broker", "namesrv", "pipeline", "formats")
    for words, names in loaded.items():
        assert not heavy & names, words
        assert not {f"rocketlens.{engine}" for engine in engines} & names, words
    unneeded = {"rocketlens.cli", "rocketlens.mqadmin", "msgspec", "dataclasses", "inspect"}
    assert not unneeded & loaded[""]


def test_only_the_command_that_is_named_is_imported():
    code = (
        "import sys; from rocketlens.main import build_parser; build_parser(['index', 'verify']);"
        "print(*(name for name in sys.modules if name.startswith('rocketlens.cli.')))"
    )
    done = subprocess.run(process(code=code), capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("rocketlens.cli.") for name in done.stdout.split()}
    assert "jobs.index" in loaded
    assert not loaded & {"find", "show", "status", "dlq", "context", "jobs.archive", "send"}


def test_the_list_of_commands_has_headings(run):
    lines = run("help").out.partition("commands:\n")[2].partition("\n\nexit codes")[0].splitlines()
    headings = [line.strip(" :") for line in lines if line and not line.startswith("    ")]
    assert headings == list(program._HEADINGS.values())
    assert lines[1].split()[0] == "find"
    listed = [line.split()[0] for line in lines if line.startswith("    ") and line[4] != " "]
    assert sorted(listed) == sorted({name.split()[0] for name in program._COMMANDS})


def test_version_is_a_command_too(run):
    assert run("version").out == run("--version").out
