"""Extracts ids, positions and keys from pasted text, such as log lines, quoted texts and lists.

A text is first searched unchanged, since a key can be any text. If that finds nothing, its parts
are searched, by the first row of this table that applies:

=====================================================  =========================================
the text contains                                      searched
=====================================================  =========================================
message ids (32, 34, 40 or 56 hexadecimal digits),     each id, up to `MAX_TEXTS`
also in full-width characters
``MessageQueue [topic=T, brokerName=B, queueId=1]``    ``T/1/5``
and ``queueOffset=5``
``broker-a/T/1/5``                                     ``T/1/5``
several texts, separated by commas or lines            each text, trimmed
white space, format characters, quotes or brackets     the text inside
around a text, a trailing comma, leading ``msgId=``
=====================================================  =========================================
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer, SourceKind, failure, hint
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.answer_builder import order_in_time
from rocketlens.query.request import MAX_TEXTS, FindRequest

PASTED: Final = "text"
"""The source name in coverage."""
_SHOWN: Final = 5
_ID: Final = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{56}|[0-9A-Fa-f]{40}|[0-9A-Fa-f]{34}|[0-9A-Fa-f]{32})"
    r"(?![0-9A-Za-z])"
)
_QUEUE: Final = re.compile(
    r"topic=(?P<topic>[^,\]\s]{1,255}+).{0,300}?queueId=(?P<queue>\d{1,10}+).{0,50}?"
    r"queueOffset[=:]\s*(?P<at>\d{1,19})",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
"""Bounded repetitions: each ``topic=`` in a long text is tried."""
_WITH_BROKER: Final = re.compile(r"[^/\s]+/([^/\s]+/\d{1,10}/\d{1,19})", re.ASCII)
_NAMED: Final = re.compile(
    r"(?:msg_?id|message_?id|offset_?msg_?id|uniq(?:ue)?_?key|keys?|id)[\"']?\s*[=:]\s*",
    re.IGNORECASE,
)
_BETWEEN: Final = re.compile(r"[,;\n\r\t\u3001\uff0c]")
_AROUND: Final = " \t\r\n\"'`,;()[]<>{}\u2018\u2019\u201c\u201d\u300c\u300d"


def texts_in(text: str) -> tuple[str, ...]:
    """Return the searchable parts of a text; empty if there are none besides the text itself."""
    plain = unicodedata.normalize("NFKC", text)
    plain = "".join(each for each in plain if unicodedata.category(each) != "Cf")
    queue = _QUEUE.search(plain)
    with_broker = _WITH_BROKER.fullmatch(_bare(plain))
    found: Sequence[str] = _ID.findall(plain)
    if not found and queue is not None:
        found = [f"{queue['topic']}/{queue['queue']}/{queue['at']}"]
    if not found and with_broker is not None:
        found = [with_broker[1]]
    if not found:
        found = [each for each in map(_bare, _BETWEEN.split(plain)) if each]
    return tuple(each for each in dict.fromkeys(found) if each != text)


def _bare(text: str) -> str:
    bare = text.strip(_AROUND)
    named = _NAMED.match(bare)
    return bare if named is None else bare[named.end() :].strip(_AROUND)


def requests_in_text(request: FindRequest, answer: Answer) -> list[FindRequest]:
    """Return the requests for the parts of a text that was not found unchanged."""
    if request.text is None or request.kind == "queue-offset" or answer.messages:
        return []
    requests = []
    for text in texts_in(request.text)[:MAX_TEXTS]:
        try:
            requests.append(replace(request, text=text).checked())
        except BadInput:
            continue
    return requests


def merge_parts(request: FindRequest, answer: Answer, more: Sequence[Answer]) -> Answer:
    """Merge an answer with those for the parts of its text, and describe the parts in coverage."""
    if not more:
        return answer
    by_identity = {order_in_time(message): message for each in more for message in each.messages}
    messages = [by_identity[rank] for rank in sorted(by_identity)]
    most = len(messages) if request.max_num is None else request.max_num
    kept = (
        messages[:most] if request.oldest else messages[len(messages) - min(most, len(messages)) :]
    )
    held = {id(message): each.sources_of(message) for each in more for message in each.messages}
    texts = [each.query for each in more]
    shown = ", ".join(texts[:_SHOWN]) + (", ..." if texts[_SHOWN:] else "")
    said = hint(PASTED, Sentence("understood_as", texts=shown))
    count = len(texts_in(request.text or ""))
    if count > MAX_TEXTS:
        error = Sentence("understood_first", texts=shown, searched=MAX_TEXTS, count=count)
        said = failure(PASTED, SourceKind.TOPICS, error)
    searched = (each.coverage for each in (answer, *more))
    return Answer(
        request.query,
        tuple(kept),
        (said, *dict.fromkeys(chain.from_iterable(searched))),
        truncated=len(kept) < len(messages) or any(each.truncated for each in more),
        index_last_update_timestamp_ms=answer.index_last_update_timestamp_ms,
        held_by=tuple(held[id(each)] for each in kept) if any(held.values()) else (),
    )
