"""Each keyword of `find`, `scan`, `tail` and `story` stands once, and every function has it."""

import asyncio
import inspect
from pathlib import Path

import pytest

import rocketlens
from rocketlens.query import options
from rocketlens.query.request import FindRequest, StoryRequest, tail_filter

FUNCTIONS = {
    options.FindOptions: (
        FindRequest.parse,
        rocketlens.Store.find,
        rocketlens.MQAdmin.find,
        rocketlens.SyncMQAdmin.find,
        rocketlens.find,
        rocketlens.find_async,
    ),
    options.ScanOptions: (FindRequest.parse, rocketlens.Store.scan, rocketlens.MQAdmin.scan),
    options.TailOptions: (tail_filter, rocketlens.Store.tail, rocketlens.MQAdmin.tail),
    options.StoryOptions: (
        StoryRequest.parse,
        rocketlens.Store.story,
        rocketlens.MQAdmin.story,
        rocketlens.SyncMQAdmin.story,
        rocketlens.story,
        rocketlens.story_async,
    ),
}


@pytest.mark.parametrize(
    ("declared", "function"),
    [(declared, each) for declared, functions in FUNCTIONS.items() for each in functions],
    ids=lambda one: one.__qualname__,
)
def test_every_function_shows_the_keywords_with_one_default(declared, function):
    first = inspect.signature(FUNCTIONS[declared][0]).parameters
    shown = inspect.signature(function).parameters
    assert {name: shown[name].default for name in declared.__annotations__} == {
        name: first[name].default for name in declared.__annotations__
    }
    assert inspect.Parameter.VAR_KEYWORD not in {each.kind for each in shown.values()}


@pytest.mark.parametrize("declared", FUNCTIONS, ids=lambda one: one.__name__)
def test_the_meaning_of_each_keyword_is_told_where_it_is_declared(declared):
    text = Path(options.__file__).read_text(encoding="utf-8")
    for name in declared.__annotations__:
        assert f"``{name}``" in text


def test_a_keyword_that_is_not_taken_is_refused_with_what_was_meant(tmp_path):
    log = tmp_path / "commitlog" / "00000000000000000000"
    log.parent.mkdir()
    log.write_bytes(bytes(1024))
    with rocketlens.open_store(tmp_path) as store:
        with pytest.raises(TypeError, match=r"find\(\) has no argument 'max'.*max_num"):
            store.find("k", max=1)
        for name, meant in (("since", "begin"), ("until", "end"), ("limit", "max_num")):
            with pytest.raises(TypeError, match=rf"argument '{name}'; did you mean {meant}\?$"):
                store.find("k", **{name: 1})
        with pytest.raises(TypeError, match=r"argument 'limit'; did you mean newest\?$"):
            store.tail("T", limit=1)
        with pytest.raises(TypeError, match=r"tail\(\) has no argument 'tag'.*tags"):
            store.tail("T", tag="A")
    with pytest.raises(TypeError, match=r"find_async\(\) has no argument 'topics'"):
        asyncio.run(rocketlens.find_async("k", sources=[tmp_path], topics="T"))


def test_a_function_that_is_awaited_is_one_still():
    assert inspect.iscoroutinefunction(rocketlens.MQAdmin.find)
