"""An installation that lacks a kernel, or has one of another machine, says how to mend it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rocketlens

REMEDY = "pip install --force-reinstall --no-deps rocketlens"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A copy of the package, and a function that runs the program in it."""
    root = tmp_path_factory.mktemp("installed")
    shutil.copytree(Path(rocketlens.__file__).parent, root / "rocketlens")

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "rocketlens", *words],
            env=os.environ | {"PYTHONPATH": str(root)},
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )

    return root / "rocketlens" / "formats" / "compiled", run


@pytest.mark.parametrize("content", [None, b"\xcf\xfa\xed\xfe of another machine"])
@pytest.mark.parametrize("name", ["scan", "index"])
@pytest.mark.parametrize("words", [["find", "--grep", "nowhere"], ["index", "build"]])
def test_one_sentence_says_what_to_install(installed, golden, name, content, words):
    folder, run = installed
    extension = folder / f"{name}.abi3.so"
    whole = extension.read_bytes()
    try:
        extension.unlink()
        if content is not None:
            extension.write_bytes(content)
        done = run(*words, "--store", golden("4.9.7").store)
    finally:
        extension.write_bytes(whole)
    assert done.returncode == 2
    assert REMEDY in done.stderr
    assert len(done.stderr.splitlines()) == 1
