"""Parts that every front end on a terminal needs: contexts, output, times, and exit codes."""
