"""The ``rocketlens`` command: one module per command, imported when that command runs."""
