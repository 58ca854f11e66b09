"""What the real tool printed of the golden stores."""

import re

import pytest

from rocketlens.mqadmin.printing.form import Form

VERSIONS = ("4.9.7", "5.5.0")

both = pytest.mark.parametrize("version", VERSIONS)


def printed(golden, version, name):
    """The text without the command before it; 5.5 begins with an empty line."""
    text = (golden(version).mqadmin / f"{name}.txt").read_text(encoding="utf-8")
    return text.split("\n", 1)[1].strip("\n")


def form_of(version):
    return Form(is_5=version.startswith("5"))


def bounds(text):
    return {
        name: found[1]
        for name in ("MIN_OFFSET", "MAX_OFFSET")
        if (found := re.search(rf"\b{name}=(\d+)", text))
    }
