"""The documentation says what the program does."""

import argparse
import json
import re
import shlex
from pathlib import Path

import pytest

import rocketlens
from rocketlens.cli.as_json import answer_fields, message_fields
from rocketlens.main import build_parser
from rocketlens.testing import cluster

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
STORE_IN_README = "/data/rocketmq/store"


def blocks(text, language=""):
    """The fenced blocks of a language, in order."""
    fenced = re.findall(r"^```([a-z]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [content for name, content in fenced if name == language]


def command_lines(text):
    for block in blocks(text):
        for line in block.splitlines():
            if line.startswith("rocketlens "):
                yield line


def all_parsers(parser):
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from all_parsers(child)


def parsed(line, monkeypatch, capsys):
    monkeypatch.setenv("ROCKETLENS_STORE", "/data/rocketmq/store")
    try:
        return build_parser().parse_args(shlex.split(line, comments=True)[1:])
    except SystemExit as ended:
        if ended.code:
            pytest.fail(f"{line}: {capsys.readouterr().err}")
        return None  # --version


@pytest.mark.parametrize("line", list(command_lines(README)))
def test_every_command_in_the_readme_is_understood(line, monkeypatch, capsys):
    parsed(line, monkeypatch, capsys)


def test_the_readme_shows_every_command(monkeypatch, capsys):
    shown = set()
    for line in command_lines(README):
        words = shlex.split(line, comments=True)[1:]
        shown.add(" ".join(words[:2]) if words[0] == "index" else words[0])
    parser = build_parser()
    commands = {child.prog.removeprefix("rocketlens ") for child in all_parsers(parser)}
    assert commands - {"rocketlens", "index"} <= shown


def test_the_readme_names_every_option():
    options = {
        option
        for parser in all_parsers(build_parser())
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    # -o is how --output is shown; --help needs no words.
    missing = {o for o in options - {"--help", "--output"} if not re.search(rf"{o}\b", README)}
    assert missing == set()
    assert "-o json" in README


def test_every_option_has_help():
    for parser in all_parsers(build_parser()):
        for action in parser._actions:
            if not isinstance(action, argparse._SubParsersAction):
                assert action.help, (parser.prog, action.dest)


def test_the_readme_names_every_choice_of_kind_output_and_body():
    for parser in all_parsers(build_parser()):
        for action in parser._actions:
            if action.choices and not isinstance(action, argparse._SubParsersAction):
                for choice in set(action.choices) - {"auto"}:
                    assert choice in README


def test_make_has_what_the_documentation_asks_for():
    asked = set(re.findall(r"\bmake ([a-z-]+)", README + ARCHITECTURE))
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert {"demo", "test", "bench", "check"} <= asked & targets
    block = blocks(README)[0]
    assert re.findall(r"^make [a-z]+", block, re.MULTILINE) == ["make demo", "make test"]


def test_the_json_in_the_readme_has_the_fields_of_the_program(golden):
    with rocketlens.open_store(golden("5.5.0").store) as store:
        answer = store.find("order-42")
    real = {**answer_fields(answer), "messages": [message_fields(m) for m in answer.messages]}
    (block,) = blocks(README, "json")
    shown = json.loads(block)
    assert list(shown) == list(real)
    assert list(shown["coverage"][0]) == list(real["coverage"][0])
    assert set(shown["messages"][0]) <= set(real["messages"][0])
    for name in real["messages"][0]:
        assert f"`{name}`" in README or f'"{name}"' in README


def test_the_python_in_the_readme_runs(golden, capsys):
    code = blocks(README, "python")[0].replace(STORE_IN_README, str(golden("5.5.0").store))
    exec(compile(code, "README.md", "exec"), {})
    assert "PayTopic" in capsys.readouterr().out


@pytest.mark.parametrize("number", [1, 2])
def test_the_python_for_a_cluster_in_the_readme_runs(number, capsys):
    with cluster() as running:
        code = blocks(README, "python")[number].replace("127.0.0.1:9876", running.name_server)
        exec(compile(code, "README.md", "exec"), {})
    assert "SEND_OK" in capsys.readouterr().out


def test_the_spark_in_the_readme_runs(golden, spark, capsys):
    code = blocks(README, "python")[3].replace(STORE_IN_README, str(golden("5.5.0").store))
    exec(compile(code, "README.md", "exec"), {"spark": spark})
    assert "store_timestamp_ms" in capsys.readouterr().out


def test_links_lead_somewhere():
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (REPOSITORY / target).exists(), (name, target)


def test_architecture_names_only_modules_that_exist():
    rooms = "|".join(
        path.name for path in (REPOSITORY / "src" / "rocketlens").iterdir() if path.is_dir()
    )
    for name in re.findall(rf"`((?:{rooms})/[a-z_/]+)(?:\.py)?`", ARCHITECTURE):
        path = REPOSITORY / "src" / "rocketlens" / name
        assert path.is_dir() or path.with_suffix(".py").exists(), name


def test_the_reliability_table_has_a_test_a_row():
    tests = (REPOSITORY / "tests" / "unit" / "cli" / "test_reliability.py").read_text("utf-8")
    rows = {
        "one bit flipped in one body": "test_one_flipped_bit_costs_one_message_and_that_is_said",
        "a link in an index chain": "test_a_cycle_in_an_index_chain_ends_and_answers_stay_right",
        "index deleted, cut or its header": "test_a_lost_or_cut_index_costs_no_message",
        "the index is of another store": "test_an_index_of_another_store_gives_no_wrong_answer",
        "an offset inside a body": "test_a_record_forged_inside_a_body_is_not_believed",
    }
    table = README.partition("## What it promises")[2].partition("## ")[0]
    shown = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(shown) - 1 == len(rows)
    for row, test in rows.items():
        assert f"| {row}" in table
        assert f"def {test}(" in tests


def test_the_version_in_the_changelog_is_the_packages():
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{rocketlens.__version__}]" in changelog
