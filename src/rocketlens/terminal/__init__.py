"""Parts that terminal programs share: contexts, output, times, and exit codes."""
