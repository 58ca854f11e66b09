"""A store directory on disk.

``read`` needs no lock and changes nothing; it never imports ``write``. Both use ``fs``, ``disk``,
``lock`` and ``layout``.
"""
