"""Compiled kernels for the bytes of a log.

They work on arrays in memory (or mapped), open no file and keep nothing between calls. Input is not
trusted: for any bytes, no call reads or writes outside its arrays, or reports a record where there
is none.

A ``buffer`` is the bytes of a segment, whose first byte has physical offset ``base_offset``.
Positions are indexes into it, offsets are those of the log. Pass some thousand rows at a time: they
stay in the processor's cache between two calls.
"""

from rocketlens.errors import PackageMissing

try:
    # All of them, so that an incomplete installation fails at once.
    from rocketlens.formats.compiled import (  # noqa: F401
        answer,
        archive,
        device,
        index,
        pull,
        scan,
        send,
        send_parse,
        text,
    )
except (ImportError, AttributeError) as error:
    # If Cython is installed and nothing is built, the import raises an AttributeError.
    raise PackageMissing(
        "RocketLens's compiled part is missing or was built for another machine: install it again "
        "(pip install --force-reinstall --no-deps rocketlens; in a checkout: "
        f"python packaging/kernels.py): {error}",
        name=__name__,
    ) from error
