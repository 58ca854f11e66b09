"""What ``import rocketlens`` gives, and what it costs."""

import importlib
import subprocess
import sys

import pytest

import rocketlens


@pytest.mark.parametrize("name", rocketlens.__all__)
def test_every_public_name_is_the_thing_itself(name):
    found = getattr(rocketlens, name)
    home = importlib.import_module(found.__module__)
    assert getattr(home, found.__name__) is found
    assert name in dir(rocketlens)


def test_a_name_that_there_is_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'open_shop'"):
        rocketlens.open_shop  # noqa: B018


def test_nothing_of_it_is_loaded_before_it_is_used():
    code = "import sys, rocketlens; print(*(name for name in sys.modules if 'rocketlens.' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_from_import_works_for_all():
    code = "from rocketlens import *; print(open_store.__name__, Store.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["open_store", "Store"]
