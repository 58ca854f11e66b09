"""The prompt of ``rocketlens sql``."""

import pytest

from rocketlens.cli.sql.sql_prompt import run_prompt
from rocketlens.errors import BadInput


@pytest.fixture
def typed(monkeypatch):
    """Type lines at a prompt; give the prompts that were shown."""

    def type_lines(*lines):
        left, shown = list(lines), []

        def read(prompt):
            shown.append(prompt)
            line = left.pop(0) if left else EOFError()
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr("builtins.input", read)
        return shown

    return type_lines


def test_a_query_ends_with_a_semicolon_and_may_have_several_lines(typed):
    shown = typed("select 1", "from messages;", "select 2;")
    queries = []
    assert run_prompt(queries.append) == 0
    assert queries == ["select 1\nfrom messages", "select 2"]
    assert [each.strip() for each in shown] == ["messages>", "...>", "messages>", "messages>"]


@pytest.mark.parametrize("word", [".quit", "quit", "EXIT;", ".exit"])
def test_a_word_ends_it(typed, word):
    typed(word, "select 1;")
    queries = []
    assert run_prompt(queries.append) == 0
    assert queries == []


def test_an_error_is_printed_and_the_next_query_runs(typed, capsys):
    typed("wrong;", ";", "right;")
    queries = []

    def run(query):
        queries.append(query)
        if query == "wrong":
            raise BadInput("no such thing")

    run_prompt(run)
    assert queries == ["wrong", "right"]
    assert "no such thing" in capsys.readouterr().err


def test_ctrl_c_discards_what_was_typed(typed):
    typed("select", KeyboardInterrupt(), "select 2;")
    queries = []
    run_prompt(queries.append)
    assert queries == ["select 2"]
