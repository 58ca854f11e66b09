import gc
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlens.errors import SparkUnavailable
from rocketlens.pipeline import session
from tests.support.patience import PATIENCE_S

PLAIN_SESSION = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert not [name for name in sys.modules if name.startswith(("rocketlens", "pyspark_rocketmq"))]
table = spark.read.format("rocketmq").option("store", sys.argv[1]).load()
print(table.count(), table.filter("topic = 'PayTopic'").count(), table.count())
"""


def fake_java(directory: Path, *, says: str, release: str | None = None) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    if release is not None:
        (directory / "release").write_text(release)
    return java


def start_with(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = (
        "from rocketlens.errors import SparkUnavailable\n"
        "from rocketlens.pipeline.session import start\n"
        "try: start()\n"
        "except SparkUnavailable as error: print(error)\n"
    )
    environment = {"HOME": os.environ.get("HOME", "/")} | environment
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )


def test_without_java_one_line_says_what_to_install(tmp_path):
    said = start_with({"PATH": str(tmp_path)})
    assert said.stdout == (
        "no Java found, which Spark needs: install a JDK >= 17 and set JAVA_HOME to it\n"
    )
    assert said.stderr == ""


@pytest.mark.parametrize(
    ("says", "release"),
    [
        ('openjdk version "11.0.2" 2019-01-15', None),
        ("", 'IMPLEMENTOR="X"\nJAVA_VERSION="11.0.2"\n'),
        ('java version "1.8.0_301"', None),
    ],
)
def test_a_java_too_old_is_named_with_what_to_install(tmp_path, says, release):
    java = fake_java(tmp_path, says=says, release=release)
    said = start_with({"JAVA_HOME": str(tmp_path)})
    version = "8" if "1.8" in says else "11"
    assert said.stdout == (
        f"{java} is Java {version}, too old for Spark:"
        " install a JDK >= 17 and set JAVA_HOME to it\n"
    )


def test_java_home_without_java_is_named(tmp_path):
    said = start_with({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert said.stdout.startswith(f"JAVA_HOME is {tmp_path}, which has no bin/java: install")


def test_a_java_that_says_nothing_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    fake_java(tmp_path, says="hello")
    with pytest.raises(SparkUnavailable, match="does not say its version"):
        session.check_available()


def test_without_pyspark_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    with pytest.raises(SparkUnavailable, match=r"pip install .*\[spark\]'"):
        session.check_available()


def test_the_version_is_read_from_the_release_file_without_starting_java(tmp_path, monkeypatch):
    fake_java(tmp_path, says="must not be asked", release='JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert session.find_java() == (tmp_path / "bin" / "java", 21)


def state_of_worker(_):
    command = Path("/proc/self/cmdline").read_bytes().decode().split("\0")
    return (
        command,
        sys.executable,
        "rocketlens.bulk.queue_build" in sys.modules,
        gc.get_freeze_count(),
        sys.modules["pyspark"].__file__,
    )


def test_workers_run_this_interpreter_with_what_tasks_need_and_never_search_it_for_garbage(spark):
    state = spark.sparkContext.parallelize([0], 1).map(state_of_worker).first()
    command, executable, is_loaded, frozen, imported = state
    assert executable == sys.executable
    assert "rocketlens.pipeline.worker_daemon" in command
    assert is_loaded
    assert frozen > 10_000
    # As it is installed, with bytecode, and not from Spark's ZIP file.
    assert imported == sys.modules["pyspark"].__file__


TASKS = """
import sys
from rocketlens.pipeline import jobs, session
for _ in range(2):
    context = session.start_tasks("local[1]")
    assert jobs.run(context, "add", [(20, 22)], sum) == [42]
    context.stop()
print(sorted({"pandas", "pyarrow"} & set(sys.modules)))
"""


def test_contexts_for_tasks_follow_one_another_and_load_neither_pandas_nor_arrow(spark):
    """``spark`` skips the test where there is no JDK."""
    del spark
    said = run_quietly(TASKS)
    assert said == "[]\n"


def run_quietly(code: str, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    said = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert said.stderr == ""
    return said.stdout


def test_numpys_values_are_still_converted_for_java(spark):
    import numpy as np
    from pyspark.sql import functions

    table = spark.range(5)
    assert table.filter(functions.col("id") == functions.lit(np.int64(3))).count() == 1
    assert table.filter(functions.col("id") < np.int32(2)).count() == 2


@pytest.mark.parametrize("quick", [False, True])
def test_a_jvm_has_all_options_that_sessions_ask_for(jdk, quick):
    chosen = session.settings("2g", is_local=True, quick=quick)
    done = subprocess.run(
        [
            jdk.java,
            *chosen["spark.driver.extraJavaOptions"].split(),
            "-XX:+PrintFlagsFinal",
            "-version",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    # Queries of notebooks are compiled well in the end, and jobs whose work is in Python never.
    (level,) = (line for line in done.stdout.splitlines() if " TieredStopAtLevel " in line)
    assert level.split()[3] == ("1" if quick else "4")


def test_a_jvm_that_does_not_start_is_told_in_its_own_words():
    code = (
        # PySpark leaves the pipe of a JVM open that did not start.
        "import warnings; warnings.simplefilter('ignore')\n"
        "from rocketlens.errors import SparkUnavailable\n"
        "from rocketlens.pipeline.session import start_tasks\n"
        "try: start_tasks('local[1]', memory='1k')\n"
        "except SparkUnavailable as error: print(error)\n"
    )
    said = run_quietly(code)
    assert said.startswith("Spark does not start on local[1]: Error occurred during initialization")


MAPS_CLASSES = """
import sys
from rocketlens.pipeline import session
context = session.start_tasks("local[1]")
with open(f"/proc/{context._gateway.proc.pid}/maps") as maps:
    print(any(sys.argv[1] in line for line in maps))
context.stop()
"""


@pytest.mark.slow
def test_a_jvm_maps_the_classes_that_an_earlier_one_wrote(tmp_path, jdk):
    del jdk
    if not sys.platform.startswith("linux"):
        pytest.skip("what a process has mapped is read from /proc")
    # The first JVM writes them when it ends, while this process goes on.
    uses = []
    while "True\n" not in uses and len(uses) < 20:
        uses.append(run_quietly(MAPS_CLASSES, str(tmp_path), XDG_CACHE_HOME=str(tmp_path)))
    assert uses[0] == "False\n"
    assert uses[-1] == "True\n"


def test_the_file_of_classes_is_named_for_its_java_and_made_by_it(tmp_path):
    java = tmp_path / "java"
    options = session.class_archive(java, 17, with_sql=True, cache=tmp_path)
    assert options.startswith(f"-XX:ArchiveClassesAtExit={tmp_path}/rocketlens/spark-")
    path = Path(options.split()[0].partition("=")[2])
    # As a JVM leaves it that was killed while it wrote.
    path.write_bytes(bytes(4) + b"classes")
    assert session.class_archive(java, 17, with_sql=True, cache=tmp_path) == options
    path.write_bytes(b"classes")
    again = session.class_archive(java, 17, with_sql=True, cache=tmp_path)
    assert again.startswith(f"-XX:SharedArchiveFile={path} ")
    assert str(path) not in session.class_archive(java, 18, with_sql=True, cache=tmp_path)
    assert str(path) not in session.class_archive(java, 17, with_sql=False, cache=tmp_path)
    renewed = session.class_archive(java, 25, with_sql=True, cache=tmp_path)
    assert renewed.startswith("-XX:+AutoCreateSharedArchive -XX:SharedArchiveFile=")


def test_files_of_classes_that_were_not_used_for_a_month_are_removed(tmp_path):
    options = session.class_archive(tmp_path / "java", 17, with_sql=True, cache=tmp_path)
    own = Path(options.split()[0].partition("=")[2])
    old, new = own.with_name("spark-old.jsa"), own.with_name("spark-tasks-new.jsa")
    for path in (own, old, new):
        path.write_bytes(b"classes")
    for path in (own, old):
        os.utime(path, (0, 0))
    session.class_archive(tmp_path / "java", 17, with_sql=True, cache=tmp_path)
    assert [path.exists() for path in (own, old, new)] == [True, False, True]


@pytest.mark.parametrize("name", ["a file", "my documents"])
def test_without_a_place_for_the_classes_spark_starts_all_the_same(tmp_path, name):
    cache = tmp_path / name
    if name == "a file":
        cache = tmp_path / "file"
        cache.write_text("a file where a directory would have to be")
    assert session.class_archive(tmp_path / "java", 17, with_sql=True, cache=cache) == ""


@pytest.mark.slow
def test_any_spark_session_knows_the_format_after_installation_alone(spark, golden):
    """``spark`` skips the test where there is no JDK."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", PLAIN_SESSION, golden("4.9.7").store]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    count, filtered, again = map(int, done.stdout.split())
    assert count == again > filtered > 0


BY_PATH = """
import os, sys, rocketlens
spark = rocketlens.spark("local[1]", config={"spark.ui.enabled": "false"})
print(spark.read.format("rocketmq").option("store", sys.argv[1]).load().count())
print(spark.sparkContext.pythonExec == sys.executable == os.environ["PYSPARK_PYTHON"])
"""


@pytest.mark.slow
def test_a_job_of_a_python_that_is_run_by_its_path_finds_the_source(spark, golden, tmp_path):
    """As an IDE, Jupyter or cron run it: the virtual environment is not activated.

    ``spark`` skips the test where there is no JDK.
    """
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho this is another Python >&2; exit 1\n")
    other.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    java = shutil.which("java")
    if "JAVA_HOME" not in environment and java is not None:
        environment["JAVA_HOME"] = str(Path(java).resolve().parent.parent)
    environment.pop("PYSPARK_PYTHON", None)
    command = [sys.executable, "-c", BY_PATH, golden("4.9.7").store]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    count, is_same = done.stdout.split()
    assert int(count) > 1800
    assert is_same == "True"


@pytest.mark.parametrize("chosen", [None, "/opt/python3"])
def test_importing_the_source_has_workers_run_this_python_unless_another_is_chosen(chosen):
    environment = {name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"}
    if chosen:
        environment["PYSPARK_PYTHON"] = chosen
    code = "import os, pyspark_rocketmq; print(os.environ['PYSPARK_PYTHON'])"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert said.stdout.strip() == (chosen or sys.executable)


def test_the_module_that_spark_imports_everywhere_is_light():
    code = (
        "import pyspark.sql.datasource, sys, time\n"
        "before = set(sys.modules)\n"
        "import pyspark_rocketmq\n"
        "heavy = {'numpy', 'pyarrow', 'pandas', 'zstandard', 'lz4', 'rich'}\n"
        "print(sorted(heavy & (set(sys.modules) - before)))\n"
        "print(pyspark_rocketmq.DefaultSource.name())\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert said.stdout == "[]\nrocketmq\n"


@pytest.mark.parametrize(
    ("master", "says"),
    [
        ("spark://127.0.0.1:1", "Connection refused"),
        ("spark://127.0.0.1:1,nothing", "'nothing' is not HOST:PORT"),
    ],
)
def test_a_master_that_does_not_answer_is_named_before_spark_is_started(master, says):
    from rocketlens.pipeline.session import start

    with pytest.raises(SparkUnavailable, match=f"no Spark master answers at {master}.*{says}"):
        start(master)


def test_ctrl_c_in_a_command_that_uses_spark_is_quiet(golden):
    with subprocess.Popen(
        [sys.executable, "-m", "rocketlens", "index", "verify", "--store", golden("5.5.0").store],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as command:
        first = command.stderr.readline()
        # As a terminal does: to the whole group, so that Spark's JVM gets it, too.
        os.killpg(command.pid, signal.SIGINT)
        said, complained = command.communicate()
    # A shell shows 130 for both. Python ends by the signal itself where it came while a module that
    # was being imported ran code from text, as dataclasses do.
    assert command.returncode in (130, -signal.SIGINT)
    assert first.startswith("starting Spark")
    assert (said, complained) == ("", "")
