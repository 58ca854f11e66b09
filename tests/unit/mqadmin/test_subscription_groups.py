"""What is printed of consumer groups is what the real tool printed of the same answers."""

import re
from pathlib import Path

import pytest

from rocketlens.main import main
from rocketlens.net.sync import LoopThread
from tests.support.group_world import command_lines, comparable, group_world
from tests.unit.mqadmin.printed_by_rocketmq import VERSIONS

PRINTED = Path(__file__).with_name("printed")


@pytest.fixture(scope="module")
def world():
    thread = LoopThread()
    running = group_world()
    yield thread.run(running.__aenter__())
    thread.run(running.__aexit__(None, None, None))
    thread.close()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path, zone):
    """In UTC, and where consumerStatus may write files."""
    zone("UTC")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def expected_outputs(version):
    text = (PRINTED / f"groups-{version[:3]}.txt").read_text(encoding="utf-8")
    blocks = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(blocks[::2], [each.strip("\n") for each in blocks[1::2]], strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_each_command_prints_what_the_real_tool_prints(world, capsys, version):
    expected = expected_outputs(version)
    wrong = {}
    for line, words in command_lines(world, version):
        capsys.readouterr()
        main(["mqadmin", "--layout", version[:3], *words])
        out = comparable(capsys.readouterr().out, world)
        if out != expected.pop(line):
            wrong[line] = out
    assert wrong == {}
    assert expected == {}
