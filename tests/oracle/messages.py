"""The messages that are sent. Each follows from a seed and its number, so an answer can be checked.

A message says in a property of its own which number and topic it was sent with. So even a message
whose send was never acknowledged, and which is in the store all the same, can be held to what was
sent.
"""

import functools
import random
from typing import NamedTuple

from rocketlens.client.send.message import Message

SENT_AS = "sent_as"
"""The property that names seed, number and topic."""

SHARED_KEY_COUNT = 40
MAX_BODY_BYTES = 100 * 1024
_BODY_BYTES = ((0, 40), (0, 400), (0, 400), (400, 4_000), (4_000, 20_000), (20_000, MAX_BODY_BYTES))
_TAGS = (None, "TagA", "TagB", "Tag-标签")
_KEYS_THAT_TEST_TEXT = ("ключ", "a" * 120, "x:1;y=2", "💡")


class Content(NamedTuple):
    """All that a producer decides about a message but its topic."""

    number: int
    body: bytes
    keys: tuple[str, ...]
    tags: str | None
    properties: dict[str, str]


@functools.lru_cache(maxsize=256)
def content_of(seed: int, number: int) -> Content:
    """Return the message with this number."""
    chance = random.Random(f"{seed}/{number}")
    low, high = chance.choice(_BODY_BYTES)
    size = max(1, chance.randrange(low, high))
    pattern = b"%d:" % number + chance.randbytes(61)
    body = (pattern * (size // len(pattern) + 1))[:size]
    keys = [f"k{number}", shared_key(number)]
    if chance.random() < 0.2:
        keys.append(chance.choice(_KEYS_THAT_TEST_TEXT) + str(number))
    if chance.random() < 0.1:
        keys = keys[:1]
    properties = {f"p{n}": "v" * chance.randrange(1, 60) for n in range(chance.randrange(3))}
    return Content(number, body, tuple(keys), chance.choice(_TAGS), properties)


def shared_key(number: int) -> str:
    """Return the key that this message has in common with others."""
    return f"shared{number % SHARED_KEY_COUNT}"


def message_of(seed: int, number: int, topic: str) -> Message:
    """Return the message as a producer sends it."""
    content = content_of(seed, number)
    properties = content.properties | {SENT_AS: f"{seed}/{number}/{topic}"}
    return Message(topic, content.body, tags=content.tags, keys=content.keys, properties=properties)
