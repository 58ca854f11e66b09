"""Compiled kernels that read and write each byte of a log, called through ``kernels``."""

from rocketlens.errors import PackageMissing

try:
    # All of them, so that half an installation fails at once.
    from rocketlens.formats.compiled import (  # noqa: F401
        answer,
        archive,
        index,
        pull,
        scan,
        send,
        send_parse,
        text,
    )
except (ImportError, AttributeError) as error:
    # Where Cython is installed and nothing is built, it raises an AttributeError.
    raise PackageMissing(
        "RocketLens's compiled part is missing or was built for another machine: install it again "
        "(pip install --force-reinstall --no-deps rocketlens; in a checkout: "
        f"python packaging/kernels.py): {error}",
        name=__name__,
    ) from error
