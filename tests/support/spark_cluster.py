"""A standalone cluster of Spark on this machine, whose workers have one core each."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark

from tests.peer.rocketmq_peer import free_ports

_SPARK_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"


@contextmanager
def running(directory: Path, workers: int) -> Iterator[str]:
    """Run a cluster, and return its address.

    The files of worker ``n`` are in ``directory/n``, with a directory for each executor it ran.
    Each worker is a host of its own, since Spark speculates on other hosts only.
    """
    port = free_ports()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = ("master.Master", "--host", "127.0.0.1", "--webui-port", "0", "--port", str(port))
        stack.enter_context(_daemon(*master, until="New state: ALIVE"))
        for number in range(workers):
            own = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / str(number)))
            host = ("--host", f"127.0.0.{1 + number}", "--webui-port", "0")
            worker = ("worker.Worker", *host, *own, address)
            stack.enter_context(_daemon(*worker, until="Successfully registered with master"))
        yield address


@contextmanager
def _daemon(name: str, *words: str, until: str) -> Iterator[None]:
    """Run a daemon of Spark, which is ready when its log has a text."""
    with subprocess.Popen(
        [str(_SPARK_CLASS), f"org.apache.spark.deploy.{name}", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"},
    ) as process:
        try:
            assert process.stderr is not None
            assert any(until in line for line in process.stderr), f"{name} ended"
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield
        finally:
            process.kill()
