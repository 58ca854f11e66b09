"""Exit codes, which programs rely on."""

import re

from rocketlens.terminal import exit_code
from rocketlens.terminal.output import ExitCode


def test_the_table_names_every_code():
    rows = re.findall(r"^(\d+) +([A-Z]+) ", exit_code.__doc__, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(each, each.name) for each in ExitCode]
