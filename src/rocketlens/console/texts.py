"""The words of the pages, in each language: a table for each, with the same names.

A table is a file of TOML in ``texts``. Names have a dot between a group and a word, and a text may
have values in braces: ``{count}``. The English of the group ``sentence`` is in
`rocketlens.model.text.sentences`, where the command line has it too.
"""

import tomllib
from collections.abc import Mapping
from datetime import UTC, tzinfo
from functools import cache
from pathlib import Path
from typing import Any, Final

from rocketlens.console.zones import offset_text, time_text
from rocketlens.model.text.sentences import SENTENCES, Sentence, TimeText

LANGUAGES: Final = {"en": "English", "zh": "中文"}
"""Each language's code, and its own name for itself."""
_DIRECTORY: Final = Path(__file__).parent / "texts"


@cache
def table_of(language: str) -> Mapping[str, str]:
    """Return the texts of a language by name."""
    groups = tomllib.loads((_DIRECTORY / f"{language}.toml").read_text("utf-8"))
    if language == "en":
        groups["sentence"] = SENTENCES
    return {
        f"{group}.{name}": text for group, texts in groups.items() for name, text in texts.items()
    }


class Texts:
    """The texts of one language, with times in one zone."""

    def __init__(self, language: str, zone: tzinfo = UTC) -> None:
        self.language: Final = language
        self._zone: Final = zone
        self._table: Final = table_of(language)

    def __call__(self, name: str, **values: Any) -> str:
        """Return a text with its values.

        :raises KeyError: if there is no such text.
        """
        text = self._table[name]
        return text.format(**values) if values else text

    def of_word(self, group: str, word: str) -> str:
        """Return the text of a word that sources use, such as a state; the word if it has none."""
        return self._table.get(f"{group}.{word}", word)

    def sentence(self, text: str) -> str:
        """Return a sentence and those in it in this language, with its times in the zone of these
        texts; text that is none as it is.
        """
        if isinstance(text, TimeText):
            at = text.epoch_ms
            offset = offset_text(at, self._zone)
            return time_text(at, self._zone)[:19] + offset if offset else str(text)
        if not isinstance(text, Sentence):
            return text
        values = {
            name: self.sentence(value) if isinstance(value, str) else value
            for name, value in text.values.items()
        }
        return self._table[f"sentence.{text.name}"].format(**values)


def language_of(chosen: str | None, accepted: str) -> str:
    """Return the language that was chosen, else the first that a browser accepts, else English."""
    if chosen in LANGUAGES:
        return chosen
    for part in accepted[:200].split(","):
        code = part.partition(";")[0].strip().lower()[:2]
        if code in LANGUAGES:
            return code
    return "en"
