"""Every text is there in every language, and nowhere else."""

import re
from pathlib import Path
from string import Formatter

import pytest

from rocketlens.console import pages
from rocketlens.console.texts import LANGUAGES, Texts, language_of, table_of
from rocketlens.model.answer import SourceKind
from rocketlens.query.group_state import GroupState
from rocketlens.query.story_events import EventKind

TEMPLATES = sorted((Path(pages.__file__).parent / "templates").glob("*.html"))
TAG = re.compile(r"<[^>]*>")
SHOWN_ATTRIBUTE = re.compile(r'\b(?:alt|aria-label|placeholder|title)="([^"]*)"')
EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
LETTERS = re.compile(r"[^\W\d_]{2,}")
UNITS = {"ms"}
"""Units of measurement, the same in every language."""


def fields_of(text):
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_every_language_has_the_same_texts_with_the_same_values():
    english = table_of("en")
    for language in LANGUAGES:
        table = table_of(language)
        assert table.keys() == english.keys()
        assert all(table.values())
        assert {n: fields_of(t) for n, t in table.items()} == {
            n: fields_of(t) for n, t in english.items()
        }


def test_every_word_of_sources_has_a_text():
    for group, words in (("kind", SourceKind), ("event", EventKind), ("state", GroupState)):
        for word in words:
            assert f"{group}.{word}" in table_of("en")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_words_of_its_own(path):
    source = EXPRESSION.sub("", path.read_text("utf-8"))
    shown = [TAG.sub(" ", source), *SHOWN_ATTRIBUTE.findall(source)]
    assert set(LETTERS.findall(" ".join(shown))) <= UNITS


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_text_that_a_template_names_exists(path):
    names = re.findall(r"""\bt\(["']([a-z_0-9]+\.[a-z_0-9]+)["']\s*[,)]""", path.read_text("utf-8"))
    assert set(names) <= table_of("en").keys()


def test_no_template_turns_escaping_off_or_has_code():
    for path in TEMPLATES:
        source = path.read_text("utf-8")
        assert not re.search(r"\|\s*safe\b|autoescape|<style|\bstyle=|\bon[a-z]+=", source)
        assert all(' src="/static/' in tag for tag in re.findall(r"<script[^>]*>", source))


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        (None, "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr, de;q=0.5", "en"),
        ("en", "zh", "en"),
        ("xx", "zh", "zh"),
    ],
)
def test_the_language_is_the_chosen_one_or_the_browsers(chosen, accepted, language):
    assert language_of(chosen, accepted) == language


def test_a_word_without_a_text_is_shown_as_it_is():
    assert Texts("zh").of_word("state", "consumed") == "已消费"
    assert Texts("zh").of_word("state", "brand_new") == "brand_new"
