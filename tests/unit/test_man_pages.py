"""Manual pages: one for each command, with what its parser declares."""

import re
import shutil
import subprocess
import sys
from argparse import SUPPRESS
from pathlib import Path

import pytest

from docs.generate import leaf_parsers
from rocketlens.main import build_parser

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    directory = tmp_path_factory.mktemp("man")
    program = [sys.executable, REPOSITORY / "packaging/man_pages.py", directory]
    subprocess.run(program, check=True)
    return directory


def test_every_command_has_a_page_with_its_options_and_examples(pages):
    for parser in leaf_parsers(build_parser()):
        text = (pages / f"{parser.prog.replace(' ', '-')}.1").read_text()
        plain = text.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
        for action in parser._actions:
            # Options that are refused with a reason are not shown.
            for option in action.option_strings if action.help != SUPPRESS else ():
                assert option in plain, (parser.prog, option)
        assert "\n.SH NAME\n" in text
        assert ("\n.SH EXAMPLES\n" in text) == ("examples:" in (parser.epilog or ""))


def test_the_page_of_the_program_names_those_of_all_commands(pages):
    text = (pages / "rocketlens.1").read_text()
    named = set(re.findall(r"^\.BR (\S+) \(1\)$", text, re.MULTILINE))
    written = {path.stem.replace("-", "\\-") for path in pages.iterdir()}
    assert named == written - {"rocketlens"}


def test_no_line_of_text_is_taken_for_a_request(pages):
    requests = {".TH", ".SH", ".TP", ".BR", ".PP", ".nf", ".fi"}
    for path in pages.iterdir():
        for line in path.read_text().splitlines():
            assert not line.startswith("'"), path
            assert not line.startswith(".") or line.split()[0] in requests, (path, line)


def test_groff_has_nothing_to_complain_of(pages):
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        [groff, "-man", "-ww", "-Tutf8", "-z", *sorted(pages.iterdir())],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
