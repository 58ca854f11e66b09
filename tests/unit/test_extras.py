"""Each extra, installed alone from a wheel into a clean environment, does what it is for."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SAYS = {
    "": "import rocketlens.main as m; assert m.main(['find', '--help']) == 0",
    "spark": "import pyspark, pyarrow, pandas, pyspark_rocketmq",
    "arrow": "import pyarrow, rocketlens; rocketlens.open_store",
    "pandas": "import pyarrow, pandas",
    "polars": "import pyarrow, polars",
    "archive": "import deltalake, pyarrow; from rocketlens.archive.archive import open_archive",
    "sql": "import duckdb, pyarrow; from rocketlens.cli.sql import sql_plan",
    "rocksdb": "import rocksdict; from rocketlens.store.read.rocks import is_readable; "
    "assert is_readable()",
    "serve": "import uvloop; from rocketlens.broker.life import service",
    "decode": "import re2",
    "all": "import pyspark, duckdb, deltalake, rocksdict, uvloop, re2, fastapi, polars",
    "console": "import fastapi, uvicorn, jinja2, tzdata, re2; "
    "from rocketlens.console.login import oidc_logins",
    "mcp": "import mcp; from rocketlens.console import mcp_server, app",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    return next(directory.glob("*.whl"))


def test_every_extra_is_tried():
    assert set(SAYS) == {"", *EXTRAS}


def test_all_extras_are_in_all():
    (everything,) = EXTRAS["all"]
    assert everything == f"rocketlens[{','.join(sorted(EXTRAS.keys() - {'all'}))}]"


def test_the_package_is_for_the_pythons_that_are_tested():
    tested = re.search(r"python: \[(.*)\]", (REPOSITORY / ".github/workflows/ci.yml").read_text())
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == re.findall(r"3\.\d+", tested[1])


@pytest.mark.slow
@pytest.mark.parametrize("extra", SAYS)
def test_an_extra_alone_is_enough(extra, wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wanted]
    done = subprocess.run(pip, env=environment, capture_output=True, text=True, check=False)
    if "No matching distribution" in done.stderr or "ConnectionError" in done.stderr:
        pytest.skip("packages cannot be had here")
    assert done.returncode == 0, done.stderr
    subprocess.run([python, "-m", "pip", "check"], env=environment, check=True)
    code = [python, "-c", SAYS[extra]]
    subprocess.run(code, env=environment, cwd=tmp_path, check=True, capture_output=True)
    page = tmp_path / "env/share/man/man1/rocketlens-find.1"
    assert page.is_file()
