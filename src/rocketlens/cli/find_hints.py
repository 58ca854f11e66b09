"""What may have been meant by a text that nothing was found for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocketlens import limits

_MAX_SHOWN: Final = 5


def hints(text: str, store: Path | None) -> Iterator[str]:
    """Return a line for each thing that the text may stand for; ``store`` None is a cluster."""
    words = text.split()
    if len(words) > 1:
        shown = ", ".join(words[:_MAX_SHOWN])[: limits.MAX_QUOTATION_CHARACTERS]
        yield f"spaces separate keys, so no key has one: search for one of {shown}"
    elif store is not None and text in _topics_of(store):
        yield f"{text} is a topic: rocketlens find --topic {text} lists its messages"


def _topics_of(store: Path) -> set[str]:
    """Return the topics that have queues or are configured; reads no log."""
    from rocketlens.store.read.config_tables import TOPICS_FILE, TOPICS_MEMBER, read_table
    from rocketlens.store.read.consumequeue import ConsumeQueues

    queues = ConsumeQueues(store / "consumequeue")
    return {*queues.topics(), *read_table(store, TOPICS_FILE, TOPICS_MEMBER).entries}
