"""The documentation says what the program does: README.md and the pages of ``docs/``."""

import json
import re
import shlex
import textwrap
import tomllib
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

import rocketlens
from docs import generate
from rocketlens.broker.config import BrokerConfig
from rocketlens.bulk.options import OPTIONS
from rocketlens.cli.printing import cells
from rocketlens.console.login.oidc_settings import OIDC_KEYS, oidc_settings
from rocketlens.decode.rules import FORMATS, BodyRules
from rocketlens.errors import BadInput
from rocketlens.main import build_parser, main
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.model.config_keys import keys_of
from rocketlens.model.fields import FIELDS
from rocketlens.mqadmin.command_line import check_required, parse
from rocketlens.mqadmin.run import COMMON, OURS, command_named
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.net.tls import TlsConfig
from rocketlens.store.write.config import StoreConfig
from rocketlens.terminal.as_json import message_fields
from rocketlens.terminal.contexts import Context
from rocketlens.terminal.json_text import answer_fields
from rocketlens.terminal.output import ExitCode
from rocketlens.testing import cluster
from tests.support.archives import archive_store

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "rocketlens"
ROOT_DOCUMENTS = ("README.md", *generate.ROOT_PAGES)
ARCHIVE_IN_EXAMPLES = "/lake/rocketmq"
STORE_IN_EXAMPLES = "/data/rocketmq/store"
NAME_SERVER_IN_EXAMPLES = "127.0.0.1:9876"
README_COLUMNS = 100
MOST_README_LINES = 130


def read(name):
    return (REPOSITORY / name).read_text(encoding="utf-8")


README = read("README.md")
READMES = ("README.md", "README.zh-CN.md")
WRITTEN = {
    **{name: read(name) for name in READMES},
    "CONTRIBUTING.md": read("CONTRIBUTING.md"),
    **{
        path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(generate.DOCS.rglob("*.md"))
    },
}
"""What people wrote: examples for readers, and markers where something is generated."""


@cache
def filled_pages():
    return generate.pages()


class Block(NamedTuple):
    """A fenced block of a document."""

    document: str
    language: str
    content: str

    def __str__(self):
        return f"{self.document}: {self.content.strip().splitlines()[0]}"


def blocks(document):
    fenced = re.findall(r"^```([a-z]*)\n(.*?)^```$", WRITTEN[document], re.MULTILINE | re.DOTALL)
    return [Block(document, language, content) for language, content in fenced]


BLOCKS = [block for document in WRITTEN for block in blocks(document)]
PYTHON = [block for block in BLOCKS if block.language == "python"]


def commands(block):
    """The command lines of a block, without what a shell does with their output."""
    for line in block.content.splitlines():
        start = re.match(r"(?:\$ |ExecStart=\S*/)?(?=rocketlens )", line)
        if start:
            words = shlex.split(line[start.end() :], comments=True)
            yield words[1 : words.index(">") if ">" in words else None]


def table_commands(text):
    """The command lines that are the whole of a cell: ours, and those of RocketMQ's tool."""
    for line in re.findall(r"(?<=\| )`((?:rocketlens|mqadmin) [^`]+)`(?= \|)", text):
        words = shlex.split(line.replace(r"\|", "|"))
        yield words[1:] if words[0] == "rocketlens" else words


COMMANDS = [
    words
    for block in BLOCKS
    if block.language in {"", "console", "ini"}
    for words in commands(block)
]
COMMANDS += [words for text in WRITTEN.values() for words in table_commands(text)]


def all_options():
    for parser in generate.leaf_parsers(build_parser()):
        for action in parser._actions:
            yield parser, action


# What is written.


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_in_the_documentation_is_understood(words, monkeypatch, capsys):
    monkeypatch.setenv("ROCKETLENS_STORE", STORE_IN_EXAMPLES)
    try:
        arguments = build_parser().parse_args(words)
    except SystemExit as ended:
        if ended.code:  # 0 for --version
            pytest.fail(capsys.readouterr().err)
        return
    if words[0] == "mqadmin" and arguments.words[:1] not in ([], ["help"]):
        name, *rest = arguments.words
        options = command_named(name).options
        check_required(options, parse((*COMMON, *OURS, *options), rest))


def test_nothing_is_installed_from_an_index_that_does_not_have_it():
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    # The wheels of one's own index are installed by name.
    ours = SOURCE / "model" / "installation.py"
    by_name = re.compile(r"pip install [\"']?rocketlens|\brocketlens\[")
    assert {path for path, text in texts.items() if by_name.search(text)} <= {ours}
    assert {page for page, text in WRITTEN.items() if by_name.search(text)} == set()


def test_the_examples_show_every_command():
    shown = {
        " ".join(words[:2])
        if words[0] in {"archive", "context", "dlq", "index", "job"}
        else words[0]
        for words in COMMANDS
    }
    names = {
        each.prog.removeprefix("rocketlens ") for each in generate.leaf_parsers(build_parser())
    }
    assert names <= shown


def test_every_option_has_help():
    for parser, action in all_options():
        assert action.help, (parser.prog, action.dest)


SCREENS = [
    (int(columns), line.strip())
    for text in WRITTEN.values()
    for columns, line in re.findall(r"^<!-- generate: screen (\d+)(.*) -->$", text, re.MULTILINE)
]


def test_the_screens_fit_the_terminals_they_are_of():
    assert {columns for columns, _ in SCREENS} == {80, 200}
    for columns, line in SCREENS:
        printed, code = generate.terminal_text(columns, line)
        assert code in {ExitCode.OK, ExitCode.NO, ExitCode.FAILED}
        is_data = " -o " in line or " --format " in line
        # A note is one line, so that it can be searched for; a terminal breaks it.
        own = [each for each in printed.splitlines() if not each.startswith("rocketlens: ")]
        assert printed
        assert is_data or max(map(cells, own), default=0) <= columns, line


def test_a_screen_is_what_a_terminal_shows_of_the_command():
    shown = generate.screen("80", "find", "no-such-order", "-t", "PayTopic")
    assert shown.splitlines() == [
        "```console",
        "$ rocketlens find no-such-order -t PayTopic",
        "nothing found, COMPLETE: searched 7 index files and the rest of the log, up to",
        "  2026-11-21 02:40:44.893+00:00",
        "$ echo $?",
        "1",
        "```",
    ]


def test_a_screen_has_none_of_what_was_written_over():
    assert generate._overwritten("reading 12 %\r            \rTIME\r") == "TIME"
    assert generate._overwritten("abc\rx") == "xbc"


@pytest.mark.parametrize("readme", READMES)
def test_the_find_in_the_readme_prints_what_the_readme_shows(readme):
    (block,) = (block for block in BLOCKS if block[:2] == (readme, "console"))
    (words,) = commands(block)
    printed, _ = generate.terminal_text(README_COLUMNS, " ".join(words))
    assert printed == block.content.partition("\n")[2].strip()


@pytest.mark.parametrize("readme", READMES)
def test_the_readme_is_short(readme):
    assert len(WRITTEN[readme].splitlines()) <= MOST_README_LINES


def test_the_documentation_is_in_plain_english():
    hard = r"\bwhoever|\bnobody|\bsomebody|from afar|(?<!there )(?:is|are) no\b|can be none|goes on"
    # The rules themselves quote what they forbid.
    texts = {**WRITTEN, "SECURITY.md": read("SECURITY.md"), "CONTRIBUTING.md": ""}
    found = {page: re.findall(hard, text) for page, text in texts.items()}
    assert {page: words for page, words in found.items() if words} == {}


def test_make_has_what_the_documentation_asks_for():
    text = "".join(WRITTEN.values()) + read("ARCHITECTURE.md")
    asked = set(re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", text, re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    names = {name for pair in asked for name in pair if name}
    assert {"demo", "test", "bench", "check", "docs"} <= names <= targets


def is_for_spark(block):
    """A session runs it, which has rows to send."""
    return "spark." in block.content or ".write.format(" in block.content


@pytest.mark.parametrize(
    "block", [b for b in PYTHON if not (is_for_spark(b) or "127.0.0.1" in b.content)], ids=str
)
def test_the_python_for_a_store_runs(block, golden, capsys, tmp_path):
    code = block.content.replace(STORE_IN_EXAMPLES, str(golden("5.5.0").store))
    if ARCHIVE_IN_EXAMPLES in code:
        archive_store(tmp_path, golden("5.5.0").store)
        code = code.replace(ARCHIVE_IN_EXAMPLES, str(tmp_path))
    exec(compile(code, block.document, "exec"), {})
    assert "PayTopic" in capsys.readouterr().out


@pytest.mark.parametrize(
    "block", [b for b in PYTHON if "127.0.0.1" in b.content and not is_for_spark(b)], ids=str
)
def test_the_python_for_a_cluster_runs(block, capsys):
    with cluster(recallMessageEnable=True) as running:
        code = block.content.replace(NAME_SERVER_IN_EXAMPLES, running.name_server)
        exec(compile(code, block.document, "exec"), {})
    assert "SEND_OK" in capsys.readouterr().out


@pytest.mark.parametrize("block", list(filter(is_for_spark, PYTHON)), ids=str)
def test_the_python_for_spark_runs(block, golden, spark, capsys):
    code = block.content.replace(STORE_IN_EXAMPLES, str(golden("5.5.0").store))
    with ExitStack() as stack:
        if NAME_SERVER_IN_EXAMPLES in code:
            running = stack.enter_context(cluster())
            with running.producer() as producer:
                producer.send(rocketlens.Message("PayTopic", b"{}"))
            code = code.replace(NAME_SERVER_IN_EXAMPLES, running.name_server)
        try_spark(code, block.document, spark, capsys)


SESSION = [
    words
    for block in blocks("docs/guide/session.md")
    if block.language == "console"
    for words in commands(block)
]


def test_each_command_of_the_session_works(golden, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(tmp_path / "config.toml"))
    archive_store(tmp_path / "lake", golden("5.5.0").store)
    with cluster() as running:
        with running.producer() as producer:
            body = b'{"amount": 250}'
            producer.send(rocketlens.Message("PayTopic", body, keys="order-42", tags="paid"))
        with running.admin() as admin:
            (message,) = admin.find("order-42")
        names = {
            NAME_SERVER_IN_EXAMPLES: running.name_server,
            ARCHIVE_IN_EXAMPLES: str(tmp_path / "lake"),
            "PayTopic/0/0": message.position,
        }
        for words in SESSION:
            code = main([names.get(word, word) for word in words])
            printed = capsys.readouterr()
            # What may be there and is not: warnings of this machine, and dead letters.
            other = ExitCode.NO if words[0] in {"doctor", "dlq"} else ExitCode.OK
            # Some bodies in the archive have no format that is known.
            other = ExitCode.INCOMPLETE if "--grep" in words else other
            assert code in {ExitCode.OK, other}, (words, printed.err)
            assert printed.out or words[0] in {"context", "export", "dlq"}, words
    assert (tmp_path / "pay.parquet").exists()


def try_spark(code, document, spark, capsys):
    try:
        frames = {
            "paid": spark.sql("select 'PayTopic' topic, 'order-1' keys, 'paid' tags, '{}' body"),
            "orders": spark.sql("select 'order-2' order_id, 5 total"),
        }
        exec(compile(code, document, "exec"), {"spark": spark, **frames})
        assert ".show()" not in code or "|" in capsys.readouterr().out
        assert ".start()" not in code or spark.streams.active
    finally:
        for query in spark.streams.active:
            query.stop()


def test_the_json_has_the_fields_of_the_program(golden):
    with rocketlens.open_store(golden("5.5.0").store) as store:
        answer = store.find("order-42")
    real = {**answer_fields(answer), "messages": [message_fields(m) for m in answer.messages]}
    page = filled_pages()["reference/answers.md"]
    (block,) = (block for block in blocks("docs/reference/answers.md") if block.language == "json")
    shown = json.loads(block.content)
    assert list(shown) == list(real)
    assert list(shown["coverage"][0]) == list(real["coverage"][0])
    assert set(shown["messages"][0]) <= set(real["messages"][0])
    named = set(re.findall(r"`(\w+)`", page + filled_pages()["reference/fields.md"]))
    assert {*real["messages"][0], *real["coverage"][0], *SourceKind, *SourceState} <= named


def test_the_exit_codes_are_those_of_the_program():
    section = WRITTEN["docs/reference/answers.md"].partition("## Exit codes")[2]
    shown = re.findall(r"^\| (\d+) \|", section, re.MULTILINE)
    assert shown == [str(code.value) for code in ExitCode]


def test_every_variable_of_the_environment_is_named():
    pattern = r'"((?:ROCKETLENS|ROCKETMQ|NAMESRV)_[A-Z_]+)"'
    sources = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    read_by_us = {name for text in sources for name in re.findall(pattern, text)}
    assert "ROCKETLENS_STORE" in read_by_us
    named = set(re.findall(r"`([A-Z_]+)`", WRITTEN["docs/reference/cli.md"]))
    # Names of values, not of variables.
    assert read_by_us - {"ROCKETLENS_TOOLS"} <= named


def test_the_contexts_in_the_guide_have_the_keys_of_the_program():
    (block,) = (each for each in BLOCKS if each.language == "toml" and "contexts" in each.content)
    keys = {*Context._fields} - {"name"}
    shown = tomllib.loads(block.content)
    assert shown["default_context"] in shown["contexts"]
    assert {key for context in shown["contexts"].values() for key in context} <= keys
    assert {key for key in keys if not re.search(rf"\b{key}\b", block.content)} == set()


def test_the_rules_for_bodies_in_the_reference_are_those_of_the_program(tmp_path):
    (block,) = (each for each in BLOCKS if each.language == "toml" and "[[body]]" in each.content)
    path = tmp_path / "bodies.toml"
    path.write_text(block.content, "utf-8")
    # The first file that it names: what stands before it was understood.
    with pytest.raises(BadInput, match=r"orders\.desc"):
        BodyRules.from_file(path)
    (formats,) = re.findall(r"`format` is ([^\n]*)\. A body", WRITTEN["docs/reference/bodies.md"])
    assert sorted(FORMATS) == re.findall(r"`(\w+)`", formats)


def test_the_provider_in_the_guide_is_one_that_the_console_takes(tmp_path):
    (block,) = (each for each in BLOCKS if each.language == "toml" and "[oidc]" in each.content)
    table = tomllib.loads(block.content)["oidc"]
    (tmp_path / "oidc.secret").write_text("s3cret")
    (tmp_path / "oidc.secret").chmod(0o600)
    found = oidc_settings("oidc", table, tmp_path)
    assert [each.role.name for each in found.viewer("li", ["shop-ops"]).grants] == [
        "VIEWER",
        "ADMIN",
    ]
    section = WRITTEN["docs/guide/console.md"].partition("### Login by OpenID Connect")[2]
    shown = set(re.findall(r"`(\w+)`", section.partition("A rule is for")[0]))
    assert OIDC_KEYS - {"rules"} <= shown


def test_the_tls_keys_in_the_example_are_those_of_the_program():
    shown = set(re.findall(r"^(tls\.[\w.]+)=", WRITTEN["docs/operations.md"], re.MULTILINE))
    assert len(shown) > 3
    assert shown <= {key.name for key in keys_of(TlsConfig)}


# What is generated.


def test_the_reference_of_the_command_line_has_every_option_and_choice():
    page = filled_pages()["reference/cli.md"]
    for parser, action in all_options():
        (section,) = re.findall(rf"(?ms)^## {parser.prog}$(.*?)(?=^## |\Z)", page)
        for option in set(action.option_strings) - {"-h", "--help"}:
            assert f"`{option}" in section, (parser.prog, option)
        for choice in action.choices or ():
            assert re.search(rf"[ |]{choice}[\\`]", section), (parser.prog, choice)


def test_the_reference_of_mqadmin_has_the_help_of_each_command(capsys):
    main(["mqadmin", "help"])
    names = re.findall(r"^ {3}(\w+)", capsys.readouterr().out, re.MULTILINE)
    page = filled_pages()["reference/mqadmin.md"]
    assert len(names) > 10
    for name in names:
        assert f"## {name}\n\n```text\nusage: mqadmin {name} " in page


def test_the_reference_of_the_configuration_has_every_key():
    page = filled_pages()["reference/configuration.md"]
    for config in (BrokerConfig, StoreConfig, NameServerConfig, TlsConfig):
        for key in keys_of(config):
            assert f"| `{key.name}` | {key.type_name} |" in page


def test_the_reference_of_spark_has_every_option_and_column():
    page = filled_pages()["reference/spark.md"]
    for option in OPTIONS:
        assert f"| `{option.name}` | {f'`{option.default}`' if option.default else ''} |" in page


def test_the_reference_of_fields_has_every_name_and_the_type_of_its_column():
    page = filled_pages()["reference/fields.md"]
    for name, each in FIELDS.items():
        names = ", ".join(f"`{one}`" for one in (name, *each.aliases))
        assert f"| {names} | {f'`{each.column}`' if each.column else ''} |" in page


def test_the_reference_of_limits_has_every_bound():
    page = filled_pages()["reference/limits.md"]
    bounds = {name for name in vars(rocketlens.limits) if name.isupper()}
    assert {name for name in bounds if f"| `{name}` |" not in page} == set()


def test_the_page_of_formats_has_the_tables_of_all_formats():
    page = filled_pages()["internals/formats.md"]
    for name in ("commitlog_record", "index_file", "consumequeue_entry", "checkpoint"):
        text = generate.docstring_of(f"rocketlens.formats.{name}")
        assert f"## {name}" in page
        for _, rows in generate.tables_of(text):
            for row in rows:
                assert f"| {row[0]} | {row[1]} | {row[2]} |" in page


def test_the_python_api_has_every_public_name():
    page = WRITTEN["docs/reference/python.md"]
    shown = re.findall(r"^::: (rocketlens\.[\w.]+)$", page, re.MULTILINE)
    for name in shown:
        module, _, attribute = name.rpartition(".")
        assert getattr(import_module(module), attribute).__doc__, name
    assert {f"rocketlens.{name}" for name in rocketlens.__all__} <= set(shown)


def test_a_page_with_a_marker_that_nothing_generates_fails():
    with pytest.raises(KeyError):
        generate.filled("<!-- generate: nothing -->", "page.md")


def test_a_page_that_loads_from_another_host_fails():
    page = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    generate.on_post_page('<script src="assets/a.js"></script><a href="https://b/">', page=page)
    with pytest.raises(ValueError, match=r"index\.md loads from another host: <script"):
        generate.on_post_page('<script src="https://b/c.js"></script>', page=page)


def test_docstrings_become_markdown():
    text = textwrap.dedent(
        """\
        Reads ``a|b`` with :func:`rocketlens.x`, see below::

            code <x>

        =====  ========
        name   meaning
        =====  ========
        one    ``a|b``
               more <x>
        =====  ========"""
    )
    assert generate.markdown_of(text).split("\n") == [
        "Reads `a|b` with `rocketlens.x`, see below:",
        "```text",
        "code <x>",
        "```",
        "",
        "| name | meaning |",
        "|---|---|",
        r"| one | `a\|b` more &lt;x> |",
    ]


# Links and names.


def test_links_lead_somewhere():
    for name in {*ROOT_DOCUMENTS, *WRITTEN}:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", read(name)):
            assert (REPOSITORY / name).parent.joinpath(target).exists(), (name, target)


def test_links_to_a_heading_find_it():
    headings = {
        (generate.DOCS / page).resolve(): {
            re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        | set(re.findall(r"^::: (.*)$", text, re.MULTILINE))
        for page, text in filled_pages().items()
    }
    for page in filled_pages():
        text = (generate.DOCS / page).read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
            path = (generate.DOCS / page).parent / target if target else generate.DOCS / page
            assert anchor in headings[path.resolve()], (page, target, anchor)


def test_the_navigation_has_every_page():
    pages = re.findall(r"^ +- [^:]+: (\S+\.md)$", read("mkdocs.yml"), re.MULTILINE)
    assert sorted(pages) == sorted(filled_pages())


def test_tests_that_the_documentation_names_exist():
    for page, text in {**WRITTEN, "SECURITY.md": read("SECURITY.md")}.items():
        for name, test in re.findall(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`", text):
            assert (REPOSITORY / name).exists(), (page, name)
            assert not test or f"def {test}(" in read(name), (page, test)


def test_architecture_names_only_modules_that_exist():
    rooms = "|".join(path.name for path in SOURCE.iterdir() if path.is_dir())
    for name in re.findall(rf"`((?:{rooms})/[a-z_/]+)(?:\.py)?`", read("ARCHITECTURE.md")):
        assert (SOURCE / f"{name}.py").exists() or (SOURCE / name).is_dir(), name


def test_the_glossary_has_our_names():
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    page = WRITTEN["docs/glossary.md"]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    terms = [row for row in rows if row[0] != "| term"]
    assert len(terms) >= 40
    assert all(len(row) == 4 for row in terms)
    for row in terms:
        for name in re.findall(r"`([^`]+)`", row[2]):
            is_class = name[0].isupper() and not name.isupper()
            pattern = rf"^class {name}\b" if is_class else rf"{re.escape(name)}\b"
            assert re.search(pattern if name[-1] != "%" else name, text, re.MULTILINE), name


def test_the_reliability_table_has_a_test_a_row():
    tests = read("tests/unit/cli/test_reliability.py")
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


def test_the_goals_of_speed_are_those_of_the_bench():
    from bench import __main__ as bench

    page = WRITTEN["docs/reliability.md"].partition("## Speed")[2]
    for goal in (
        f"{bench.REBUILD_GOAL:.0f} times as fast as RocketMQ, and the same bytes",
        f"{bench.WHOLE_REBUILD_GOALS[0]:.0f} times as fast as RocketMQ with its own start |",
        f"{bench.WHOLE_REBUILD_GOALS[1]:.0f} times as fast as RocketMQ with its own start, in",
        f"{bench.KERNEL_GOAL:.0f} times as fast as RocketMQ |",
        f"under {bench.PROCESS_SECONDS} s, and {bench.FIND_GOAL:.0f} times as fast as `mqadmin`",
        f"under {bench.HELP_SECONDS} s |",
        f"under {bench.LOOK_UP_MICROSECONDS:.0f} µs",
        f"under {bench.START_SECONDS} s |",
        f"found, {bench.FOUND_AT_ONCE:,} of {bench.FOUND_AT_ONCE:,}",
        f"{bench.BROKER_GOALS['sync /s']} times as many as RocketMQ",
        f"{bench.STREAM_RATE:,} messages a second",
        f"{bench.HOSTILE_FACTOR} times the 99th percentile",
        f"{bench.HOSTILE_MS} ms",
        f"stopped within {bench.STOP_SECONDS:.0f} s",
        f"{bench.TAP_RATE // 1_000_000} MB a second of one core",
    ):
        assert goal in page, goal


def test_the_newest_release_of_the_changelog_is_the_version_of_the_package():
    released = re.findall(r"^## \[([\d.]+)\] - \d", read("CHANGELOG.md"), re.MULTILINE)
    assert released[0] == rocketlens.__version__
    assert released.count(rocketlens.__version__) == 1


def test_the_version_stands_in_one_place():
    project = tomllib.loads(read("pyproject.toml"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/rocketlens/__init__.py"
