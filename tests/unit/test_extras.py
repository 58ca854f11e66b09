"""Each extra, installed alone from a wheel into a clean environment, does what it is for, and each
command without an extra that it needs says so."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rocketlens.main import _COMMANDS

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
    "decode": "import re2, jsonschema; from google.protobuf import json_format",
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


ALL = (
    *("pyspark", "pyarrow", "pandas", "polars", "deltalake", "obstore", "duckdb", "rocksdict"),
    *("uvloop", "re2", "fastapi", "uvicorn", "jinja2", "httpx", "jwt", "cryptography", "tzdata"),
    *("google", "jsonschema", "referencing", "mcp"),
)
"""What the extras install."""

ARCHIVE = {"deltalake": "archive", "pyarrow": "archive"}
NEEDS = {
    "archive run --table new --store STORE --once": {"pyspark": "spark", **ARCHIVE},
    "archive run --table s3://bucket/new --store STORE --once": {"obstore": "archive"},
    "console --store STORE": dict.fromkeys(("fastapi", "uvicorn", "jinja2"), "console"),
    "demo": {"pyspark": "spark"},
    "doctor --archive new": ARCHIVE,
    "duplicates --archive new": {"pyspark": "spark", **ARCHIVE, "pyarrow": "spark"},
    "duplicates --store STORE": {"pyspark": "spark", "pyarrow": "spark"},
    "export new.parquet -t PayTopic --store STORE": {"pyarrow": "arrow"},
    "find --grep a+b -t PayTopic --store STORE": {"re2": "decode"},
    "find x --archive new": ARCHIVE,
    "index build --store STORE --out new": {"pyspark": "spark"},
    "index follow --store STORE": {"pyspark": "spark", "pyarrow": "spark"},
    "index verify --store STORE": {"pyspark": "spark"},
    "mcp --store STORE": dict.fromkeys(("mcp", "fastapi", "httpx", "jinja2"), "mcp"),
    "sql SELECT --store STORE": {"duckdb": "sql", "pyarrow": "sql"},
    "story x --archive new": ARCHIVE,
    "topics --archive new": ARCHIVE,
}
"""Command lines, and the extra that each names when a package is not there."""

WORKS = (
    *("completion bash", "context add x --store STORE", "context use x", "context list"),
    *("context remove x", "dlq show golden_cg --store STORE", "doctor --store STORE"),
    *("export ../x.csv -t PayTopic --store STORE", "find order-42 --store STORE"),
    *("groups --store STORE", "index build --dry-run --store STORE --out new", "job list"),
    *("job show x", "watch order-42 --by 4102444800000 --store STORE"),
    *("mqadmin help", "show PayTopic/3/0 --store STORE", "status --store STORE"),
    *("story order-42 --store STORE", "tail PayTopic --store STORE", "topics --store STORE"),
    *(f"{name} --help" for name, (module, _) in _COMMANDS.items() if module),
)
"""Command lines that do without all of them."""

ASKS = (
    *("dlq list", "dlq redrive billing --send --reason x", "groups", "send Orders x", "status"),
    *("resend Orders/0/0 --send --reason x", "topics", "tail Orders", "find x", "story x"),
    "tap --home t",
)
"""Commands that without all of them get as far as to ask a cluster."""
SERVERS = (
    "namesrv --port 0",
    "serve --namesrv-port 0 --broker-port 0 --home h",
    "broker -n 127.0.0.1:1 --port 0 --home b",
)
"""Command lines of servers that start without all of them."""

RUN = """
import contextlib, io, json, os, signal, sys, threading

names, lines = json.load(sys.stdin)

class Blocking:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in names:
            return self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Blocking, sys.meta_path)
from rocketlens.main import main

results = []
def end(out, ended):
    while not (ended.wait(0.05) or "ready: " in out.getvalue()):
        pass
    ended.is_set() or signal.raise_signal(signal.SIGTERM)
for line in lines:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        ended = threading.Event()
        threading.Thread(target=end, args=(out, ended), daemon=True).start()
        code = main(line)
        ended.set()
    results.append((code, out.getvalue(), os.listdir()))
print(json.dumps(results))
"""


def results_of(names, lines, store, directory):
    """Run command lines where some packages are missing; give code, output and files of each."""
    lines = [line.replace("STORE", str(store)).split() for line in lines]
    environment = {
        **os.environ,
        "ROCKETLENS_CONFIG": str(directory / "config.toml"),
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    }
    (directory / "work").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps([names, lines]),
        cwd=directory / "work",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("package", sorted({name for needs in NEEDS.values() for name in needs}))
def test_a_missing_package_is_named_with_its_extra_before_anything_is_created(
    package, golden, tmp_path
):
    lines = [line for line, needs in NEEDS.items() if package in needs]
    results = results_of([package], lines, golden("5.5.0").store, tmp_path)
    for line, (code, said, files) in zip(lines, results, strict=True):
        expected = {"demo": 3, "doctor --archive new": 1}.get(line, 2)
        assert (code, files) == (expected, []), (line, said)
        last = next(each for each in reversed(said.splitlines()) if "pip install" in each)
        assert package in last, line
        assert f"[{NEEDS[line][package]}]" in last, line


def test_without_any_extra_the_other_commands_do_all_that_they_are_for(golden, tmp_path):
    results = results_of(ALL, WORKS, golden("5.5.0").store, tmp_path)
    for line, (code, said, files) in zip(WORKS, results, strict=True):
        assert (code in {0, 1}, files) == (True, []), (line, said)
        assert "[" not in said.partition("pip install")[2], (line, said)


def test_without_any_extra_clusters_are_asked(golden, tmp_path):
    lines = [f"{line} -n 127.0.0.1:1" for line in ASKS]
    results = results_of(ALL, lines, golden("5.5.0").store, tmp_path)
    for line, (code, said, _) in zip(lines, results, strict=True):
        assert (code, "127.0.0.1:1: no connection" in said) == (2, True), (line, said)


@pytest.mark.parametrize("line", SERVERS)
def test_without_any_extra_servers_start(line, tmp_path):
    # A signal ends one server of a process.
    ((code, said, _),) = results_of(ALL, [line], tmp_path, tmp_path)
    assert (code, "ready: " in said) == (0, True), said


def test_every_command_is_run_without_extras():
    lines = [*NEEDS, *ASKS, *SERVERS, *(line for line in WORKS if not line.endswith("--help"))]
    commands = {name for name, (module, _) in _COMMANDS.items() if module}
    assert commands == {
        name for name in commands if any(f"{line} ".startswith(f"{name} ") for line in lines)
    }
