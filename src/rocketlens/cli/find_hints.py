"""What may have been meant by a text that nothing was found for."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.cli.source import find_each
from rocketlens.errors import RocketLensError
from rocketlens.model.message_id import NearlyMessageId, nearly_message_id
from rocketlens.model.text.counted import counted
from rocketlens.terminal.cluster_access import ClusterAccess

if TYPE_CHECKING:
    from rocketlens.model.answer import Answer
    from rocketlens.query.request import FindRequest

_MAX_SHOWN: Final = 5
_MAX_COUNTED: Final = 100
"""Messages of a key in another case that are counted."""


def hints(text: str, store: Path | None, kind: str) -> Iterator[str]:
    """Return a line for each thing that the text may stand for; ``store`` None is a cluster.

    ``kind`` is what the caller says that the text is.
    """
    words = text.split()
    nearly = nearly_message_id(text) if kind in {"auto", "unique-key"} else None
    if nearly is not None:
        yield f"this looks like a message id with {_mistake(nearly)}"
    if len(words) > 1:
        shown = ", ".join(words[:_MAX_SHOWN])[: limits.MAX_QUOTATION_CHARACTERS]
        yield f"spaces separate keys, so no key has one: search for one of {shown}"
    elif store is not None and text in _topics_of(store):
        yield f"{text} is a topic: rocketlens find --topic {text} lists its messages"


def _mistake(nearly: NearlyMessageId) -> str:
    count, expected, letters, meant = nearly
    if letters:
        shown = ", ".join(f"{letter} for {digit}" for letter, digit in letters)
        return f"letters for digits ({shown}): search for {meant}"
    if count < expected:
        return f"a digit missing ({count} of {expected})"
    return f"a digit too many ({count}, and not {expected})"


def other_cases(
    text: str, source: ClusterAccess | None, arguments: Namespace, request: "FindRequest"
) -> Iterator[str]:
    """Return a line for each key that the text is in another case, and that has messages.

    ``source`` and ``request`` are as `find_in` has them. An index has only hashes of keys, so
    a text in capital or small letters can be looked up, but keys that differ in case cannot be
    listed.
    """
    is_key = request.is_key and len(text.split()) == 1
    keys = sorted({text.upper(), text.lower()} - {text}) if is_key else []
    requests = [replace(request, text=key, max_num=_MAX_COUNTED, exhaustive=False) for key in keys]
    answers: list[Answer] = []
    if requests:
        # The answer to the question stands: this is only more.
        with suppress(RocketLensError, OSError):
            answers = find_each(source, arguments, requests)
    for key, answer in zip(keys, answers, strict=False):
        if answer:
            more = " or more" if answer.truncated else ""
            number = counted(len(answer), "message")
            yield f"nothing has the key {text}; {key} has {number}{more}: case matters in keys"


def _topics_of(store: Path) -> set[str]:
    """Return the topics that have queues or are configured; reads no log."""
    from rocketlens.store.layout import StoreLayout
    from rocketlens.store.read.config_tables import TOPICS_FILE, TOPICS_MEMBER, read_table
    from rocketlens.store.read.rocks import queues_in

    layout = StoreLayout.of(store)
    queues = queues_in(layout.consume_queue)
    return {*queues.topics(), *read_table(layout.root, TOPICS_FILE, TOPICS_MEMBER).entries}
