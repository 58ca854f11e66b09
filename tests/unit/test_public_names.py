"""What ``import rocketlens`` gives, and what it costs."""

import importlib
import inspect
import re
import subprocess
import sys
from enum import Enum

import pytest

import rocketlens
import rocketlens.testing
from rocketlens.decode.rules import BodyRules


@pytest.mark.parametrize("name", rocketlens.__all__)
def test_every_public_name_is_the_thing_itself(name):
    found = getattr(rocketlens, name)
    home = importlib.import_module(found.__module__)
    assert getattr(home, found.__name__) is found
    assert name in dir(rocketlens)


def public_functions():
    """Yield functions and constructors that programs call, with their names."""
    homes = [rocketlens, rocketlens.testing]
    named = {name: getattr(home, name) for home in homes for name in home.__all__}
    for name, found in (named | {"BodyRules": BodyRules}).items():
        if not inspect.isclass(found):
            yield name, found
        elif not issubclass(found, Exception | Enum):
            yield name, found.__init__
            methods = [each for each in dir(found) if not each.startswith("_")]
            for method in methods:
                if callable(getattr(found, method)):
                    yield f"{name}.{method}", getattr(found, method)


def test_whatever_takes_a_path_takes_text_and_path_like():
    paths = {}
    for name, function in public_functions():
        for parameter in inspect.signature(function).parameters.values():
            kind = parameter.annotation
            text = kind if isinstance(kind, str) else str(kind)
            if re.search(r"\bPath(Like)?\b", text):
                paths[f"{name} {parameter.name}"] = text
    assert {"open_store path", "cluster directory", "from_file path"} <= {
        each.removeprefix("BodyRules.") for each in paths
    }
    alike = re.compile(r"\bstr\b.*\bPathLike\[str\]|\bPathLike\[str\].*\bstr\b")
    assert {name: text for name, text in paths.items() if not alike.search(text)} == {}


def test_a_name_that_there_is_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'open_shop'"):
        rocketlens.open_shop  # noqa: B018


def test_nothing_of_it_is_loaded_before_it_is_used():
    code = "import sys, rocketlens; print(*(name for name in sys.modules if 'rocketlens.' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["rocketlens.errors"]


def test_from_import_works_for_all():
    code = "from rocketlens import *; print(open_store.__name__, Store.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["open_store", "Store"]
