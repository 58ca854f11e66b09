"""Namespaces: brokers know a topic or group of namespace ``ns`` as ``ns%name``.

Names of retry, dead-letter and lite topics keep their prefix before ``ns%group``. Topics that
brokers create themselves are in no namespace. Source: ``NamespaceUtil``.
"""

from rocketlens.model.rocketmq import (
    DEAD_LETTER_PREFIX,
    LITE_PREFIX,
    NAMESPACE_SEPARATOR,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    is_system_topic,
)


def with_namespace(namespace: str, name: str) -> str:
    """Return the name on brokers; unchanged without a namespace, or if it has the namespace."""
    mark, rest = _split(name)
    prefix = namespace + NAMESPACE_SEPARATOR
    if (
        not namespace
        or rest.startswith((prefix, SYSTEM_GROUP_PREFIX, SYSTEM_TOPIC_PREFIX))
        or (not mark and is_system_topic(rest))
    ):
        return name
    return mark + prefix + rest


def without_namespace(namespace: str, name: str) -> str:
    mark, rest = _split(name)
    return mark + rest.removeprefix(namespace + NAMESPACE_SEPARATOR) if namespace else name


def is_in_namespace(namespace: str, name: str) -> bool:
    """Return True if a name on brokers is in a namespace, or if there is no namespace."""
    return not namespace or _split(name)[1].startswith(namespace + NAMESPACE_SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for mark in (RETRY_PREFIX, DEAD_LETTER_PREFIX, LITE_PREFIX):
        if name.startswith(mark):
            return mark, name[len(mark) :]
    return "", name
