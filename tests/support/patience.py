"""How long tests wait, on any machine."""

PATIENCE_S = 300.0
"""For what must happen. Only a hang takes as long, on a busy machine, too."""
SILENCE_S = 1.0
"""For what never answers: long enough for all others to answer, and waited for in full."""
