"""A store directory on disk.

``read`` needs no lock and changes nothing; it never imports ``write``. Both use ``fs``, ``disk``,
``lock`` and ``layout``. A file or directory that exists and cannot be read now raises OSError: it
never counts as missing or empty.
"""
