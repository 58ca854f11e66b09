"""Every bound says what it bounds, and bounds it."""

import ast
import re
from pathlib import Path

import pytest

from rocketlens import limits

SOURCE = Path(limits.__file__).parent
BODY = ast.parse(Path(limits.__file__).read_text(encoding="utf-8")).body
NAMES = [node.target.id for node in BODY if isinstance(node, ast.AnnAssign)]

SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for path in SOURCE.rglob("*.py")
    if path != Path(limits.__file__)
)
IMPORTS = " ".join(re.findall(r"\bimport (\([^)]*\)|.*)", SOURCES))
USED = {*re.findall(r"\blimits\.(\w+)", SOURCES), *re.findall(r"\w+", IMPORTS)}


def docstring_of(name):
    """The text that stands right behind an assignment."""
    for node, following in zip(BODY, [*BODY[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and node.target.id == name:
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            return following.value.value if is_text else ""
    return ""


def test_there_are_limits():
    assert len(NAMES) > 10


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_is_a_positive_number_with_a_reason(name):
    value = getattr(limits, name)
    for number in value if isinstance(value, tuple) else (value,):
        assert isinstance(number, int | float)
        assert number > 0
    assert docstring_of(name).strip()


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_is_used(name):
    # One that only defines another is used through it.
    derived = re.search(rf": Final = {name}$", Path(limits.__file__).read_text(), re.MULTILINE)
    assert name in USED or derived, name
