"""The JVM of a session, which starts without Spark's scripts where nobody configured them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlens.errors import SparkUnavailable
from rocketlens.pipeline import jvm, session
from tests.pipeline.test_session import fake_java
from tests.support.patience import PATIENCE_S

TASKS = """
import sys
from rocketlens.pipeline import jobs, session
for _ in range(2):
    spark = session.start_tasks("local[1]")
    assert jobs.run(spark, "add", [(20, 22)], sum) == [42]
    jvm = spark.sparkContext._gateway.proc
    spark.stop()
    print(jvm.wait())
print(sorted({"pandas", "pyarrow"} & set(sys.modules)))
"""


@pytest.fixture
def home(tmp_path):
    """Return the directory of a pyspark that nobody configured."""
    (tmp_path / "jars").mkdir()
    return tmp_path


def test_the_jvm_has_the_command_of_sparks_own_launcher(jdk):
    del jdk
    java, _ = session.find_java()
    home = session._home()
    chosen = session.settings("3g", is_local=True)
    asked = [x for name, value in chosen.items() for x in ("--conf", f"{name}={value}")]
    jars, main = f"{home}/jars/*", "org.apache.spark.launcher.Main"
    command = [java, "-cp", jars, main, "org.apache.spark.deploy.SparkSubmit", *asked]
    said = subprocess.run(
        [*command, "pyspark-shell"],
        env=os.environ | {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    _, *theirs = said.stdout.strip("\0\n").split("\0")
    _, *ours, _ = map(str, jvm.java_command(java, home, chosen))
    assert ours == theirs[: theirs.index("org.apache.spark.deploy.SparkSubmit")]


@pytest.mark.parametrize("quick", [False, True])
def test_a_jvm_has_all_options_that_sessions_ask_for(jdk, quick):
    options = session.settings("2g", is_local=True, quick=quick)[jvm.JAVA_OPTIONS].split()
    done = subprocess.run(
        [jdk.java, *options, "-XX:+PrintFlagsFinal", "-version"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    # Queries of notebooks are compiled well in the end, and jobs whose work is in Python never.
    (level,) = (line for line in done.stdout.splitlines() if " TieredStopAtLevel " in line)
    assert level.split()[3] == ("1" if quick else "4")


def test_a_local_session_needs_none_of_sparks_scripts(home):
    changed = ["spark.sql.shuffle.partitions", "spark.ui.enabled", "spark.driver.memory"]
    environment = {"PATH": "/bin", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": "python3"}
    assert not jvm.needs_scripts(changed, environment, home)


@pytest.mark.parametrize(
    ("changed", "environment"),
    [
        (["spark.jars.packages"], {}),
        (["spark.driver.extraClassPath"], {}),
        (["spark.driver.extraJavaOptions"], {}),
        (["spark.hadoop.fs.s3a.endpoint"], {}),
        ([], {"PYSPARK_SUBMIT_ARGS": "--jars a.jar pyspark-shell"}),
        ([], {"SPARK_CONF_DIR": "/etc/spark"}),
        ([], {"SPARK_HOME": "/opt/spark"}),
        ([], {"SPARK_DRIVER_MEMORY": "8g"}),
        ([], {"HADOOP_CONF_DIR": "/etc/hadoop"}),
        ([], {"PYSPARK_GATEWAY_PORT": "1"}),
    ],
)
def test_what_users_configure_is_read_by_sparks_scripts(home, changed, environment):
    assert jvm.needs_scripts(changed, environment, home)


def test_a_directory_of_settings_in_pyspark_is_read_by_sparks_scripts(home):
    (home / "conf").mkdir()
    assert jvm.needs_scripts([], {}, home)


def test_a_jvm_that_does_not_start_is_told_in_its_own_words(tmp_path):
    java = fake_java(tmp_path, says="Error: Could not create the Java Virtual Machine.")
    with pytest.raises(SparkUnavailable, match=r"did not start: Error: Could not create"):
        jvm.start_jvm("local[1]", {}, [java], with_sql=False)


def test_numpys_values_are_still_converted_for_java(spark):
    import numpy as np
    from pyspark.sql import functions

    table = spark.range(5)
    assert table.filter(functions.col("id") == functions.lit(np.int64(3))).count() == 1
    assert table.filter(functions.col("id") < np.int32(2)).count() == 2


def test_sessions_for_tasks_follow_one_another_and_load_no_pandas_arrow_or_kernels(spark):
    """``spark`` skips the test where there is no JDK."""
    del spark
    said = subprocess.run(
        [sys.executable, "-W", "error", "-c", TASKS],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert said.stderr == ""
    assert said.stdout == "0\n0\n[]\n"
