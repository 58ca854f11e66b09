"""The keys of a record in the index, and their hashes.

An index file has one entry for each, in this order: the unique key, each of KEYS (repeated ones
repeatedly), and with RocketMQ 5's tag index the tags.
:mod:`rocketlens.formats.compiled.kernels_scan` has the same rule compiled; a test holds the two
together. Source: ``IndexService.buildIndex``.
"""

from rocketlens.formats.commitlog_record import Record, is_indexed
from rocketlens.model import properties as props
from rocketlens.model.text.java import decode_utf8, index_hash


def key_hash(topic: str, key: str) -> int:
    """Return the index hash of a key of a topic."""
    return index_hash(f"{topic}#{key}")


def tags_hash(topic: str, tags: str) -> int:
    """Return the index hash of the tags of a topic's message."""
    return key_hash(topic, f"T#{tags}")


def index_hashes(record: Record, *, with_tags: bool) -> list[int]:
    """Return the hashes of a record's index entries, in RocketMQ's order."""
    if not is_indexed(record.sys_flag):
        return []
    properties = props.parse(decode_utf8(record.properties))
    unique_key, tags = properties.get(props.UNIQUE_KEY), properties.get(props.TAGS)
    hashes = [key_hash(record.topic, unique_key)] if unique_key else []
    hashes += [key_hash(record.topic, key) for key in props.split_keys(properties.get(props.KEYS))]
    if with_tags and tags:
        hashes.append(tags_hash(record.topic, tags))
    return hashes
