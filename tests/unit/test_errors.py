"""The tree of errors is as its docstring draws it.

Every bound says what it bounds, and bounds it.
"""

import copy
import inspect
import pickle
import re
from collections import Counter
from pathlib import Path

import pytest

from docs.generate import bounds
from rocketlens import errors, limits
from rocketlens.model.answer import Answer

LINE = re.compile(r"^ *([│ ]*)[├└]── (\w+) ")


def drawn():
    """Name and parent of every error in the drawing."""
    branch = {0: "RocketLensError"}
    for line in errors.__doc__.splitlines():
        if match := LINE.match(line):
            depth = len(match.group(1)) // 4 + 1
            branch[depth] = match.group(2)
            yield match.group(2), branch[depth - 1]


def defined():
    return {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    }


def test_every_error_drawn_exists_under_the_parent_it_is_drawn_under():
    for name, parent in drawn():
        assert defined()[name].__bases__[0].__name__ == parent


def test_every_error_that_exists_is_drawn_once():
    names = [name for name, _ in drawn()]
    assert sorted([*names, "RocketLensError"]) == sorted(defined())


@pytest.mark.parametrize("name", sorted(defined()))
def test_every_error_says_its_code_and_whether_to_try_again(name):
    kind = defined()[name]
    assert kind.code is None or isinstance(kind.code, int)
    assert isinstance(kind.retriable, bool)


def test_not_found_and_could_not_look_are_never_taken_for_each_other():
    assert not issubclass(errors.MessageNotFound, errors.AnswerIncomplete)
    assert not issubclass(errors.AnswerIncomplete, errors.MessageNotFound)
    answer = Answer("q", (), ())
    assert errors.AnswerIncomplete("text", answer).answer is answer


def test_python_code_catches_them_as_what_they_are():
    for name in ("BadInput", "FormatError", "RecordError", "ConfigError"):
        assert issubclass(defined()[name], ValueError)
    assert issubclass(errors.MessageNotFound, LookupError)


def test_a_record_error_names_its_place_where_it_is_known():
    known = errors.RecordError("crc", "is not what was stored", 91)
    assert (str(known), known.reason, known.physical_offset) == (
        "record at physical offset 91: is not what was stored",
        "crc",
        91,
    )
    assert str(errors.RecordError("crc", "is wrong")) == "record: is wrong"


MADE = (
    errors.RecordError("crc", "is wrong", 91),
    errors.FieldError("queueId", "the field is null"),
    errors.ConnectFailed("host:9876", "refused"),
    errors.CallTimeout("host:9876", "no answer"),
    errors.BadAnswer("host:9876", "GET_ROUTE", "not JSON"),
    errors.BrokerError("host:10911", 14, "full", retriable=True),
    errors.SendFailed("not sent", [("a", errors.BrokerError("b", 2, None, retriable=False))]),
    errors.ReplyTimeout("T", "id", 3.0),
    errors.AnswerIncomplete("text", Answer("q", (), ())),
    errors.PackageMissing("install it", name="pyarrow"),
    errors.BadInput("a", "b"),
)


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_can_be_copied_and_pickled_with_all_that_it_has(error, copied):
    other = copied(error)
    assert type(other) is type(error)
    assert (str(other), other.args) == (str(error), error.args)
    assert {name: str(value) for name, value in vars(other).items()} == {
        name: str(value) for name, value in vars(error).items()
    }
    assert (other.code, other.retriable) == (error.code, error.retriable)
    assert getattr(other, "name", None) == getattr(error, "name", None)


def test_classes_of_other_modules_can_be_pickled_too():
    for kind in every_subclass(errors.RocketLensError):
        error = kind.__new__(kind)
        error.args = ("text",)
        assert str(pickle.loads(pickle.dumps(error))) == "text"


def every_subclass(kind):
    for each in kind.__subclasses__():
        yield each
        yield from every_subclass(each)


MOVED = {"MAX_TAIL_ENTRIES", "MAX_PATTERN_CHARACTERS", "MAX_NEWEST_SCAN_BYTES"}


def test_every_bound_is_a_positive_number_with_a_reason_and_is_used():
    bounded = {name: (value, meaning) for value, name, meaning in bounds()}
    assert bounded.keys() >= {"MAX_BODY_BYTES", *MOVED}
    assert not any(hasattr(limits, name) for name in MOVED)
    uses = Counter(
        word
        for path in Path(limits.__file__).parent.rglob("*")
        if path.suffix in {".py", ".html"}
        for word in re.findall(r"\b[A-Z][A-Z0-9_]+\b", path.read_text(encoding="utf-8"))
    )
    for name, (value, meaning) in bounded.items():
        for number in value if isinstance(value, tuple) else (value,):
            assert isinstance(number, int | float), name
            assert number > 0, name
        assert meaning.strip(), name
        assert uses[name] > 1, name
