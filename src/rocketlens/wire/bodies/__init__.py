"""The JSON bodies of commands, by subject: read with ``read_body``, written with ``write_body``."""
