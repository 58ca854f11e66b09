"""The room needs no Spark: neither to be imported nor to read a store."""

import subprocess
import sys
from pathlib import Path

import rocketlens.bulk

MODULES = sorted(path.stem for path in Path(rocketlens.bulk.__file__).parent.glob("[a-z]*.py"))

PROGRAM = """
import sys
from importlib import import_module
sys.modules["pyspark"] = None
for name in sys.argv[2:]:
    import_module(f"rocketlens.bulk.{name}")
from rocketlens import read_batches
print(sum(batch.num_rows for batch in read_batches(sys.argv[1])))
"""


def test_a_store_is_read_as_arrow_batches_where_pyspark_is_not_installed(golden):
    store = golden("5.5.0")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(store.store), *MODULES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= len(store.sent)
