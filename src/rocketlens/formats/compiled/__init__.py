"""Compiled kernels that read and write each byte of a log.

They work on arrays in memory (or mapped), open no file and keep nothing between calls. Input is not
trusted: whatever the bytes are, no call reads or writes outside its arrays, and no record is
reported where there is none.

A ``buffer`` is the bytes of a segment, whose byte 0 stands at physical offset ``base_offset`` of
the log. Positions are indexes into it, offsets are the log's. Work in pieces of a few thousand
rows: they stay in the processor's cache between two calls.
"""

from rocketlens.errors import PackageMissing

try:
    # All of them, so that half an installation fails at once.
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
    # Where Cython is installed and nothing is built, it raises an AttributeError.
    raise PackageMissing(
        "RocketLens's compiled part is missing or was built for another machine: install it again "
        "(pip install --force-reinstall --no-deps rocketlens; in a checkout: "
        f"python packaging/kernels.py): {error}",
        name=__name__,
    ) from error
