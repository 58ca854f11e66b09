"""A process that tries to open a store for writing.

Run as ``python -m tests.crash.store_starter PATH``: exits with 0 when it got the store, and gave it
back; else with 2, and the seconds on its output from asking for the store to being refused.
"""

import sys
import time
from pathlib import Path

from rocketlens.errors import StoreLocked
from rocketlens.store.write.message_store import MessageStore
from tests.crash.store_writer import CONFIG, OPTIONS


def main():
    """Try once."""
    begun_s = time.perf_counter()
    try:
        MessageStore(Path(sys.argv[1]), CONFIG, OPTIONS).close_abruptly()
    except StoreLocked:
        print(time.perf_counter() - begun_s)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()
