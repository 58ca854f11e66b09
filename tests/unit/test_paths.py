"""The steps in docs/internals/paths.md exist, and each is called by a step before it."""

import ast
import re
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "rocketlens"
_STEP = re.compile(r"^\d+\. (⇢ )?`([\w.]+):([\w.]+)`: \S")


def paths():
    text = (REPOSITORY / "docs" / "internals" / "paths.md").read_text(encoding="utf-8")
    for part in text.split("\n## ")[1:]:
        title, *lines = part.splitlines()
        steps = [line for line in lines if line[:1].isdigit()]
        yield title, steps


PATHS = dict(paths())


@cache
def tree_of(module):
    path = SOURCE.joinpath(*module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def definition(module, name):
    """Return the syntax of a function or class, or None."""
    node = tree_of(module)
    for part in name.split("."):
        named = (
            each
            for each in ast.iter_child_nodes(node)
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and each.name == part
        )
        node = next(named, None)
        if node is None:
            return None
    return node


def named_in(node):
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def test_there_are_the_six_paths():
    assert len(PATHS) == 6
    assert all(len(steps) > 6 for steps in PATHS.values())


@pytest.mark.parametrize("title", PATHS)
def test_the_steps_of_a_path_are_numbered_and_exist(title):
    for number, line in enumerate(PATHS[title], 1):
        assert line.startswith(f"{number}. ")
        _, module, name = _STEP.match(line).groups()
        assert definition(module, name) is not None, line


@pytest.mark.parametrize("title", PATHS)
def test_each_step_is_called_by_one_before_it(title):
    steps = [_STEP.match(line).groups() for line in PATHS[title]]
    for step in steps[1:]:
        arrow, _, name = step
        before = takewhile(lambda each, step=step: each is not step, steps)
        called = set().union(*(named_in(definition(*each[1:])) for each in before))
        assert arrow or name.rpartition(".")[2] in called, step
