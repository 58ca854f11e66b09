"""Runs a program where a directory is a disk of its own that is soon full."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def fill(directory):
    """Write a file ``ballast`` until the disk has no room for another byte."""
    with (directory / "ballast").open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"b" * size)
            except OSError:
                pass


def run_on_a_small_disk(program, directory, *, mib):
    """Run Python text with ``directory`` as its argument, a file system of some MiB in memory.

    Skips the test where no such can be made.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare (util-linux): a small disk of its own cannot be made")
    can = subprocess.run([unshare, "-Urm", "true"], capture_output=True, check=False)
    if can.returncode:
        pytest.skip(f"user namespaces are off here: {can.stderr.decode().strip()}")
    mount = f'mount -t tmpfs -o size={mib}m none "$0"'
    return subprocess.run(
        [
            *(unshare, "-Urm", "sh", "-c"),
            f'{mount} && exec "$PYTHON" -X faulthandler -c "$PROGRAM" "$0"',
            str(directory),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "PYTHON": sys.executable,
            "PROGRAM": program,
        },
    )
