"""A store directory on disk.

``fs``, ``disk``, ``lock`` and ``layout`` are below both of its rooms: ``read``, which needs no lock
and changes nothing, and ``write``. ``read`` knows nothing of ``write``.
"""
