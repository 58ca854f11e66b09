"""Tags codes of messages that are appended: Java's hash of the TAGS property."""

from typing import Final

from rocketlens.model import properties as props
from rocketlens.model.text.java import decode_utf8, string_hash

_TAGS_NAME: Final = b"TAGS\x01"
_TAGS_KEPT: Final = 10_000


class TagsCodes:
    """Computes tags codes from raw properties, and caches those of tags."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self._known: dict[bytes, int] = {}

    def of(self, properties: bytes) -> int:
        """Return Java's hash of the TAGS property, 0 without one."""
        start = properties.rfind(_TAGS_NAME)
        if start < 0:
            return 0
        stop = properties.find(2, start)
        tags = properties[start + 5 : stop if stop >= 0 else None]
        known = self._known.get(tags)
        if known is not None and (start == 0 or properties[start - 1] == 2):
            return known
        text = props.parse(decode_utf8(properties)).get(props.TAGS, "")
        code = string_hash(text)
        if text and text.encode() == tags:
            if len(self._known) >= _TAGS_KEPT:
                self._known.clear()
            self._known[tags] = code
        return code
