"""Code compiled by numba, and its facade :mod:`rocketlens.formats.compiled.kernels`."""
