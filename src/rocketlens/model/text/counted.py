"""Counts and durations as text."""


def counted(count: int, one: str, many: str = "") -> str:
    """Return ``1 file`` or ``2,000 files``; ``many`` is an irregular plural."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def span_text(milliseconds: int) -> str:
    """Return a duration in its two largest units: ``1 h 58 min``, ``45 s``."""
    seconds = milliseconds // 1000
    parts = ((seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"))
    units = [*parts, (seconds % 60, "s")]
    first = next((number for number, (count, _) in enumerate(units) if count), len(units) - 1)
    shown = [(count, unit) for count, unit in units[first : first + 2] if count] or units[-1:]
    return " ".join(f"{count} {unit}" for count, unit in shown)
