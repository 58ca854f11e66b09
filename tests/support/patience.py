"""How long tests wait, on any machine, and what of a slow one is no fault of a program."""

import re

PATIENCE_S = 300.0
"""For what must happen. Only a hang takes as long, on a busy machine, too."""
SILENCE_S = 1.0
"""For what never answers: long enough for all others to answer, and waited for in full."""


def complaints(said: str) -> list[str]:
    """Lines of a server's log without those that a slow machine is to blame for.

    Its disk, or a builder that it kept from working for minutes.
    """
    return [line for line in said.splitlines() if not re.search("slow disk|it hung", line)]
