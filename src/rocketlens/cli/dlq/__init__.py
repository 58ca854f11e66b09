"""``rocketlens dlq``: dead letters of consumer groups."""

from rocketlens.errors import MessageNotFound


def no_dead_letters(group: str) -> MessageNotFound:
    """Return the error of a group that has none, or that there is not."""
    return MessageNotFound(
        f"group {group[:100]} has no dead letters (rocketlens dlq list: the groups that have some)"
    )
