"""What a group subscribes to: tags, or an SQL92 expression that brokers evaluate.

=====================  ==============================  ======================================
given                  on the wire (``subString``)     messages that the group gets
=====================  ==============================  ======================================
nothing, "", "*"       ``*``                           all
``"A || B"``           as given, with ``tagsSet``      with the tag A or B
``by_sql("a > 3")``    as given, type ``SQL92``        for which brokers find it true
=====================  ==============================  ======================================

Brokers compare hash codes of tags only, so a client compares the tags once more. Source:
``FilterAPI``, ``MessageSelector``, ``PullAPIWrapper``.
"""

from dataclasses import dataclass
from typing import Final, Self

from rocketlens.errors import BadInput
from rocketlens.model.arguments import check_text
from rocketlens.model.text.java import string_hash
from rocketlens.wire.bodies.clients import SubscriptionData

ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"
_OR: Final = "||"


@dataclass(frozen=True, slots=True)
class MessageSelector:
    """Which messages of a topic a group gets."""

    expression_type: str
    expression: str

    @classmethod
    def by_tag(cls, tags: str) -> Self:
        """Return a selector of tags, such as ``"TagA || TagB"``; ``"*"`` for all."""
        return cls(TAG, tags)

    @classmethod
    def by_sql(cls, expression: str) -> Self:
        """Return a selector by properties, such as ``"amount > 10 AND region = 'EU'"``.

        A broker of RocketMQ evaluates it only with ``enablePropertyFilter=true``.
        """
        return cls(SQL92, expression)


def subscription_of(
    topic: str, selector: str | MessageSelector | None, version: int
) -> SubscriptionData:
    """Return the subscription to a topic; ``version`` is the time at which it was made, in ms.

    :raises BadInput: when the expression is empty where it may not be, or has nothing but ``||``.
    """
    if selector is None or isinstance(selector, str):
        selector = MessageSelector(TAG, selector or ALL)
    if not isinstance(selector, MessageSelector):
        check_text(selector, "expression")
    text = selector.expression
    if selector.expression_type != TAG:
        if not text:
            raise BadInput(f"topic {topic}: the {selector.expression_type} expression is empty")
        return SubscriptionData(
            topic=topic,
            sub_string=text,
            sub_version=version,
            expression_type=selector.expression_type,
        )
    if text in {"", ALL}:
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version)
    # Java's trim() removes all control characters, and Java's sets keep each tag once.
    blanks = "".join(map(chr, range(0x21)))
    tags = tuple(dict.fromkeys(filter(None, (part.strip(blanks) for part in text.split(_OR)))))
    if not tags:
        raise BadInput(f"topic {topic}: {text!r} names no tag; give tags such as 'TagA || TagB'")
    return SubscriptionData(
        topic=topic,
        sub_string=text,
        tags=tags,
        codes=tuple(dict.fromkeys(map(string_hash, tags))),
        sub_version=version,
    )


def takes_tag(subscription: SubscriptionData, tag: str | None) -> bool:
    """Return whether a message of this tag, which the broker let pass, is for the group."""
    return not subscription.tags or tag in subscription.tags
