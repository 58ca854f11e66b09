"""Attributes of topics, as operators change them: ``+name=value,-name``.

======================  ============================================  ==========  ==========
attribute               value                                         changeable  else
======================  ============================================  ==========  ==========
message.type            UNSPECIFIED, MIXED, TRANSACTION, PRIORITY,    yes         NORMAL
                        FIFO, DELAY, LITE, NORMAL
reserve.time            i64 from -1                                   yes         -1
lite.topic.expiration   i64 from -1 to 43200 (minutes)                yes         -1
cleanup.policy          DELETE, COMPACTION                            no          DELETE
queue.type              SimpleCQ                                      no          SimpleCQ
======================  ============================================  ==========  ==========

An attribute that cannot be changed can be set when a topic is created. RocketMQ also has queues of
batches (``BatchCQ``). RocketLens does not, and refuses topics that need them.

Sources: ``AttributeParser``, ``AttributeUtil``, ``TopicAttributes``.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import BadInput, FieldError
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.declare import read_i64


class _Attribute(NamedTuple):
    """The allowed values of one attribute: ``values``, or a number from ``low`` to ``high``."""

    values: tuple[str, ...] = ()
    low: int = -1
    high: int = 2**63 - 1
    is_changeable: bool = True


_TYPES: Final = (
    "UNSPECIFIED",
    "MIXED",
    "TRANSACTION",
    "PRIORITY",
    "FIFO",
    "DELAY",
    "LITE",
    "NORMAL",
)
_ATTRIBUTES: Final[Mapping[str, _Attribute]] = {
    "message.type": _Attribute(_TYPES),
    "reserve.time": _Attribute(),
    "lite.topic.expiration": _Attribute(high=30 * 24 * 60),
    "cleanup.policy": _Attribute(("DELETE", "COMPACTION"), is_changeable=False),
    "queue.type": _Attribute(("SimpleCQ",), is_changeable=False),
}


class AttributeRefused(BadInput):
    """Attributes cannot be changed so; the text is RocketMQ's own remark."""

    code = ResponseCode.SYSTEM_ERROR


def change(known: Mapping[str, str] | None, text: str) -> dict[str, str]:
    """Apply ``+name=value,-name`` to the attributes of a topic; ``attributes`` is None for a new
    one.

    :raises AttributeRefused: if a change is not allowed, in RocketMQ's words.
    """
    changed = dict(known or {})
    for signed, value in _parse(text).items():
        sign, name = signed[:1], signed[1:]
        shown = name[: limits.MAX_SHOWN_CHARACTERS]
        if not name or "+" in name or "-" in name:
            raise AttributeRefused("kv string format wrong.")
        if sign == "-" and known is None:
            words = f"only add attribute is supported while creating topic. key: {shown}"
            raise AttributeRefused(words)
        if sign == "-" and name not in changed:
            raise AttributeRefused(f"attempt to delete a nonexistent key: {shown}")
        attribute = _ATTRIBUTES.get(name)
        if attribute is None:
            raise AttributeRefused(f"unsupported key: {shown}")
        if known is not None and not attribute.is_changeable:
            raise AttributeRefused(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            del changed[name]
        else:
            _check(attribute, value)
            changed[name] = value
    return changed


def _parse(text: str) -> dict[str, str]:
    """Return names with their signs, and values ("" after a minus)."""
    parsed: dict[str, str] = {}
    # As in Java, nothing follows the last comma or equals sign.
    for part in text.rstrip(",").split(",") if text.strip(",") else ():
        key, value = part, ""
        if "=" in part:
            words = part.rstrip("=").split("=") if part.strip("=") else []
            if len(words) < 2:
                raise AttributeRefused(f"Index {len(words)} out of bounds for length {len(words)}")
            key, value = words[:2]
            if "+" not in key:
                shown = key[: limits.MAX_SHOWN_CHARACTERS]
                raise AttributeRefused(f"add/alter attribute format is wrong: {shown}")
        elif "-" not in part:
            raise AttributeRefused(
                f"delete attribute format is wrong: {part[: limits.MAX_SHOWN_CHARACTERS]}"
            )
        if key in parsed:
            raise AttributeRefused(f"key duplication: {key[: limits.MAX_SHOWN_CHARACTERS]}")
        parsed[key] = value
    return parsed


def _check(attribute: _Attribute, value: str) -> None:
    if attribute.values:
        if value not in attribute.values:
            raise AttributeRefused(f"value is not in set: [{', '.join(attribute.values)}]")
        return
    try:
        number = read_i64(value)
    except FieldError:
        words = f'For input string: "{value[: limits.MAX_SHOWN_CHARACTERS]}"'
        raise AttributeRefused(words) from None
    if not attribute.low <= number <= attribute.high:
        words = f"value is not in range({attribute.low}, {attribute.high})"
        raise AttributeRefused(words)
