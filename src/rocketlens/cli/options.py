"""What several commands have among their options."""

from argparse import Namespace
from pathlib import Path

from rocketlens.errors import BadInput


def store_directory(arguments: Namespace) -> Path:
    """Return the store directory that ``--store`` or the environment names.

    :raises BadInput: when neither does.
    """
    if not arguments.store:
        raise BadInput(
            "which store? Give --store DIR, the directory that holds commitlog/, or set "
            "ROCKETLENS_STORE"
        )
    if "\0" in arguments.store:
        raise BadInput("the store's path has a zero character in it")
    return Path(arguments.store)
