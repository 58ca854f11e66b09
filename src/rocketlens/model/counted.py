"""Numbers of things, as people write them."""


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count and what it counts: ``1 file``, ``2,000 files``; ``many`` if no s makes it."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
