"""Puts the answers of several searches together."""

from collections.abc import Sequence

from rocketlens.model.answer import Answer


def merge(query: str, answers: Sequence[Answer]) -> Answer:
    """Return one answer: every message once, in the order of the log, and all coverage.

    It is incomplete if one of them is; without any answer it has no coverage, and is.
    """
    if len(answers) == 1:
        return answers[0]
    messages = {m.physical_offset: m for answer in answers for m in answer.messages}
    return Answer(
        query,
        tuple(messages[offset] for offset in sorted(messages)),
        coverage=tuple(dict.fromkeys(c for answer in answers for c in answer.coverage)),
        truncated=any(answer.truncated for answer in answers),
        index_last_update_timestamp_ms=max(
            (answer.index_last_update_timestamp_ms for answer in answers), default=0
        ),
    )
