"""Compiled kernels that read and write each byte of a log, called through ``kernels``."""

try:
    from rocketlens.formats.compiled import scan  # noqa: F401
except (ImportError, AttributeError) as error:
    # Where Cython is installed and nothing is built, it raises an AttributeError.
    raise ImportError(
        "RocketLens's compiled part is missing or was built for another machine: install it again "
        "(pip install --force-reinstall --no-deps rocketlens; in a checkout: "
        f"python packaging/kernels.py): {error}"
    ) from error
