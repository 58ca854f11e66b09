"""How a topic is configured, as the files of a store say it."""

from pathlib import Path
from typing import Any

from rocketlens.model.topic import TopicSettings
from rocketlens.store.read.config_tables import TOPICS_FILE, TOPICS_MEMBER, read_table


def topics_in_file(store: Path) -> list[str]:
    """Return the names of the topics that the file of topics has, in their order."""
    return sorted(read_table(store, TOPICS_FILE, TOPICS_MEMBER).entries)


def settings_in_store(store: Path, topic: str) -> TopicSettings | None:
    """Return the settings of a topic; None if the file has none, as of a topic that was deleted.

    A value that is not what RocketMQ writes is not known. ``error`` says why the file is not from
    the time when the broker wrote it last, if it is damaged.
    """
    table = read_table(store, TOPICS_FILE, TOPICS_MEMBER)
    entry = table.entries.get(topic)
    if not isinstance(entry, dict):
        return None

    def number(name: str) -> int | None:
        value = entry.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    attributes: Any = entry.get("attributes") or {}
    order = entry.get("order", False)
    return TopicSettings(
        None,
        number("perm"),
        number("readQueueNums"),
        number("writeQueueNums"),
        order if isinstance(order, bool) else None,
        {str(name): str(value) for name, value in attributes.items()}
        if isinstance(attributes, dict)
        else None,
        f"{TOPICS_FILE}: {table.problem}" if table.is_damaged else None,
    )
