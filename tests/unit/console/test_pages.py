"""Pages are whole without a script, safe whatever a message holds, and honest about answers."""

import re
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

from rocketlens import console
from rocketlens.console import preferences
from rocketlens.console.pages import capitalized
from rocketlens.console.preferences import Preferences, Reader
from rocketlens.console.search.search import FoundSoFar, ReadSoFar
from rocketlens.console.search.search_pages import progress_text
from tests.support.console_client import (
    FormReader,
    answer,
    answers,
    cluster_at,
    console_client,
    store_at,
)
from tests.support.effort import sized
from tests.support.made_stores import NOW_MS, Sent, make_store
from tests.support.patched import change_for
from tests.support.xss_payloads import PAYLOADS

STATIC = Path(console.__file__).with_name("static")

CHINESE = {"cookies": {"rl_language": "zh"}}


class Structure(HTMLParser):
    """The elements of a page with their attributes' names, its links, and its text."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.links, self.text = [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, tuple(sorted(name for name, _ in attributes))))
        self.links += [value for name, value in attributes if name in {"href", "src", "action"}]

    def handle_data(self, text):
        self.text += text


@pytest.fixture
def orders(tmp_path):
    sent = [
        Sent(keys=f"all ORDER-{n}", tags="PAY", body=b'{"n":%d}' % n, store_timestamp_ms=NOW_MS + n)
        for n in range(9)
    ]
    return make_store(tmp_path / "orders", sent)


IN_A_LIST = 20
"""Messages that a page with several has."""


def paths_to(number):
    """Give the pages that show the message at an offset."""
    message = f"/m/s/Orders/-/0/{number}"
    tabs = [f"{message}?tab={each}" for each in ("body", "properties", "ids")]
    return [message, *tabs, f"{message}?form=text", f"/compare?chosen={message}"]


def paths_to_list(number):
    """Give the pages that show the messages of a list."""
    lists = [f"{each}?q=list-{number}" for each in ("/search", "/search/rows", "/search/more")]
    lists.append(f"/search?q=list-{number}&columns=id,prop.own")
    lists.append(f"/story?q=list-{number}&source=s")
    return [*lists, f"/api/search?q=list-{number}"]


def path_like(path, text):
    """Give the path of a harmless page that is like one: of a list, or of a message."""
    if "list-" in path:
        return re.sub(r"[0-9]+", "0", path)
    number = 1 if " " in text else 0
    return re.sub(r"/[0-9]+(?=$|\?)", f"/{number}", path)


def structure_of(page):
    """Give the structure of a page, or of the answer in a stream."""
    return Structure(page.text.rpartition("event: answer")[2])


def sent_with(number, text):
    """Give a message that has a text wherever it can have one."""
    return Sent(
        keys=f"list-{number // IN_A_LIST} {''.join(text.split())}",
        tags=text,
        unique_key=text,
        body=text.encode(),
        named=(("own", text), (text, "value")),
    )


def test_hostile_texts_add_no_element_attribute_or_link(tmp_path):
    assert len(set(PAYLOADS)) > 200
    # The pages of the first list are as pages are. Of its second message they have no SQL: there is
    # a space in its unique key.
    harmless = [f"harmless-{number}" for number in range(IN_A_LIST)]
    harmless[1] = "quite harmless"
    texts = [*harmless, *PAYLOADS[:: sized(7, 1)]]
    texts += [f"last-{number}" for number in range(-len(texts) % IN_A_LIST)]
    made = make_store(tmp_path / "s", [sent_with(*each) for each in enumerate(texts)])
    hostile = range(IN_A_LIST, len(texts))
    shown = {path: texts[number] for number in (0, 1, *hostile) for path in paths_to(number)}
    for number, *some in zip(count(), *[iter(texts)] * IN_A_LIST, strict=False):
        shown |= dict.fromkeys(paths_to_list(number), some)
    found = dict(zip(shown, answers(shown, store_at(made.path, "s")), strict=True))
    harmless_paths = [*paths_to(0), *paths_to(1), *paths_to_list(0)]
    usual = {path: structure_of(found[path]) for path in harmless_paths}
    assert sum(tag == "tr" for tag, _ in usual["/search?q=list-0"].elements) > IN_A_LIST
    for path, page in found.items():
        assert page.status_code == 200, (path, shown[path])
        assert page.headers["x-content-type-options"] == "nosniff"
        if page.headers["content-type"] == "application/json":
            continue
        structure, expected = structure_of(page), usual[path_like(path, shown[path])]
        # A text that is JSON is coloured, by spans of ours.
        others = [each for each in structure.elements if each[0] != "span"]
        assert others == [each for each in expected.elements if each[0] != "span"], (
            path,
            shown[path],
        )
        spans = {names for tag, names in structure.elements if tag == "span"}
        assert spans <= {(), ("class",), ("aria-hidden", "class")}, (path, shown[path])
        pages = ("/search", "/m/", "/topics", "/groups", "/jobs", "/preferences")
        pages += ("/clients", "/brokers", "/pipeline", "/saved", "/story?", "/compare")
        ours = ("/static/", "#main", "/api/export?", *pages)
        assert all(link == "/" or link.startswith(ours) for link in structure.links), shown[path]


def test_a_hostile_question_adds_nothing_to_the_page(orders):
    texts = ("harmless", *PAYLOADS[::7])
    paths = [f"/search?{name}={quote(text)}" for name in ("q", "where", "grep") for text in texts]
    usual, *others = answers(paths, store_at(orders.path))
    elements = Structure(usual.text).elements
    for found in others:
        assert "script>alert" not in found.text
        if found.status_code == 200:
            tags = {tag for tag, _ in Structure(found.text).elements}
            assert tags <= {tag for tag, _ in elements}


def test_the_first_view_has_the_answer_without_a_script(orders):
    found = answer("/search?q=all&max=5", store_at(orders.path))
    structure = Structure(found.text)
    assert "Complete" in structure.text
    assert "ORDER-8" in structure.text
    assert "ORDER-3" not in structure.text
    (more,) = [link for link in structure.links if "cursor=" in link]
    second = answer(more, store_at(orders.path))
    assert "ORDER-3" in second.text
    assert "ORDER-8" not in second.text


def test_an_incomplete_answer_never_looks_like_not_found(orders):
    found = answer("/search?q=NOPE", store_at(orders.path), cluster_at("127.0.0.1:1", "gone"))
    structure = Structure(found.text)
    assert "Incomplete" in structure.text
    assert "Not found" not in structure.text
    assert "127.0.0.1:1" in structure.text


def test_not_found_lists_reasons_and_wider_searches(orders):
    found = answer("/search?q=NOPE&topic=Orders&since=1h", store_at(orders.path))
    structure = Structure(found.text)
    assert "Not found, and everything was searched" in structure.text
    assert "/search?q=NOPE&topic=Orders" in structure.links
    assert "/search?q=NOPE&since=1h" in structure.links


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0A00000500002A9F000000000000401", "message id with a digit missing: 31 of 32."),
        ("0A00000500002A9F00000000000040101", "message id with a digit too many: 33, and not 32."),
        ("0A00000500002A9F00000000000040lO", "letters for digits (l → 1, O → 0): 0A00000500002"),
    ],
)
def test_an_id_with_a_small_mistake_is_the_first_likely_reason(orders, text, said):
    found = answer(f"/search?q={text}", store_at(orders.path))
    reasons = Structure(found.text).text.partition("Likely reasons")[2]
    assert reasons.strip().startswith("This looks like a ")
    assert said in reasons
    chinese = answer(f"/search?q={text}", store_at(orders.path), **CHINESE)
    assert "看起来像" in chinese.text
    key = answer(f"/search?q={text}&kind=key", store_at(orders.path))
    assert "This looks like" not in key.text


def test_an_id_with_letters_for_digits_has_a_search_for_the_id(orders):
    found = answer("/search?q=0A00000500002A9F00000000000O4010", store_at(orders.path))
    assert "/search?q=0A00000500002A9F0000000000004010" in Structure(found.text).links


@pytest.mark.parametrize("times", [f"&since={NOW_MS - 1}", f"&until={NOW_MS + 1}", ""])
def test_a_text_that_is_no_key_can_be_searched_for_in_bodies(tmp_path, times):
    sent = [Sent(keys="k", body=body) for body in (b'{"order":"A-1.2"}', b'{"order":"A-1x2"}')]
    store = store_at(make_store(tmp_path / "store", sent).path)
    nothing = answer(f"/search?q=A-1.2{times}", store)
    assert "Not found, and everything was searched" in nothing.text
    (wider,) = [each for each in Structure(nothing.text).links if "grep=" in each]
    assert ("since=24h" in wider) == (times == "")
    if times:
        found = answer(wider, store).text
        assert "1 message on this page" in found
        assert "A-1.2" in found


@pytest.mark.parametrize("pasted", ["'ORDER-8'", "ORDER-8，", "\u200bORDER-8\u2060", "(ORDER-8)"])
def test_a_key_in_quotes_brackets_or_invisible_characters_is_found(orders, pasted):
    found = answer(f"/api/search?q={quote(pasted)}", store_at(orders.path)).json()
    assert [each["keys"] for each in found["messages"]] == [["all", "ORDER-8"]]


@pytest.mark.parametrize("pasted", ["订单号：ORDER-8", "order no. ORDER-8."])
def test_a_key_that_was_pasted_with_more_around_it_is_searched_for_alone(orders, pasted):
    nothing = answer(f"/search?q={quote(pasted)}", store_at(orders.path))
    assert "There is more in the box than a key" in nothing.text
    assert "/search?q=ORDER-8" in Structure(nothing.text).links
    plain = answer("/search?q=ORDER-9", store_at(orders.path))
    assert "There is more in the box than a key" not in plain.text


def test_a_key_in_the_wrong_case_is_searched_for_in_the_other_one(orders):
    store = store_at(orders.path)
    for typed, other in (("order-8", "ORDER-8"), ("NOPE-8", "nope-8")):
        links = Structure(answer(f"/search?q={typed}", store).text).links
        assert f"/search?q={other}" in links
    assert "the other case" not in answer("/search?q=123", store).text


async def test_times_that_were_typed_stay_what_they_are_when_another_zone_is_chosen(orders):
    async with console_client(store_at(orders.path, "s")) as client:
        path = "/search?topic=Orders&since=2020-01-01%2010:00&form=time"
        _, _, fields = next(
            each for each in FormReader((await client.get(path)).text).forms if "zone" in each[2]
        )
        chosen = {**fields, "zone": "Asia/Shanghai"}
        posted = await client.post("/preferences", data=chosen)
        page = await client.get(posted.headers["location"])
    assert 'name="since" value="2020-01-01 18:00' in page.text
    assert page.url.params["form"] == "time"


def test_a_tag_in_a_list_leads_to_the_messages_with_it(orders):
    links = Structure(answer("/search?q=ORDER-8", store_at(orders.path)).text).links
    assert "/search?topic=Orders&tag=PAY" in links


def test_a_time_before_the_oldest_message_is_named_as_the_reason(orders):
    found = answer("/search?topic=Orders&until=2001-01-01", store_at(orders.path))
    assert "The oldest message is from" in found.text


def test_a_wrong_topic_is_said_with_what_was_meant(orders):
    found = answer("/search?topic=Ordrs", store_at(orders.path))
    assert found.status_code == 404
    assert "There is no such topic" in found.text
    assert "Orders" in found.text


def test_every_page_is_there_in_both_languages(orders):
    paths = ["/", "/search?q=all", "/m/s/Orders/-/0/1", "/topics", "/groups", "/nonsense"]
    english = answers(paths, store_at(orders.path, "s"))
    chinese = answers(paths, store_at(orders.path, "s"), **CHINESE)
    for one, other in zip(english, chinese, strict=True):
        assert 'lang="en"' in one.text
        assert 'lang="zh"' in other.text
        tags = [tag for tag, _ in Structure(one.text).elements]
        assert tags == [tag for tag, _ in Structure(other.text).elements]


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("any", {"q"}),
        ("time", {"topic", "since", "until", "tag"}),
        ("key", {"q", "topic", "kind"}),
        ("id", {"q", "topic"}),
    ],
)
def test_the_forms_are_forms_of_one_search(orders, form, names):
    found = answer(f"/search?form={form}", store_at(orders.path))
    for name in names:
        assert f'name="{name}"' in found.text


def fields_shown(page):
    """Give the fields of the form of a search that a page shows, without hidden ones: names with
    their value, or else with their hint.
    """
    area = page.text.partition('<section class="search card"')[2].partition("</section>")[0]
    inputs = [
        dict(re.findall(r'([a-z]+)="([^"]*)"', tag)) for tag in re.findall("<input[^>]*>", area)
    ]
    return {
        each["name"]: each.get("value") or each.get("placeholder", "")
        for each in inputs
        if each.get("type") != "hidden"
    }


@pytest.mark.parametrize(("language", "said"), [("en", "all times"), ("zh", "全部时间")])
def test_the_form_of_a_link_without_a_time_shows_all_times(orders, language, said):
    blank, without, since = answers(
        ["/search?form=time", "/search?form=time&topic=Orders", "/search?form=time&since=2h"],
        store_at(orders.path),
        cookies={"rl_language": language},
    )
    assert fields_shown(blank)["since"] == "1h"
    assert fields_shown(without)["since"] == said
    assert "ORDER-8" in without.text
    assert fields_shown(since)["since"] == "2h"


@pytest.mark.parametrize("form", ["any", "time", "key", "id"])
def test_every_form_shows_all_that_was_searched(orders, form):
    asked = {"q": "ORDER-8", "topic": "Orders", "tag": "PAY", "since": "20000h", "until": "1m"}
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    shown = fields_shown(answer(f"/search?{query}&form={form}", store_at(orders.path)))
    assert shown.items() >= asked.items()


def test_times_are_shown_in_the_chosen_zone(orders):
    utc = answer("/m/s/Orders/-/0/1", store_at(orders.path, "s"))
    there = answer(
        "/m/s/Orders/-/0/1", store_at(orders.path, "s"), cookies={"rl_zone": "Asia/Shanghai"}
    )
    assert "+00:00" in utc.text
    assert "+08:00" in there.text
    assert "+00:00" not in there.text


def test_with_a_script_a_search_that_takes_long_streams_in(orders, monkeypatch):
    monkeypatch.setattr("rocketlens.console.search.search_pages._FIRST_VIEW_S", 0.0)
    cookies = {"rl_script": "1"}
    found = answer("/search?q=all", store_at(orders.path), cookies=cookies)
    assert 'data-stream="/search/rows?q=all"' in found.text
    kept = answer("/search?q=all&form=key&sort=size", store_at(orders.path), cookies=cookies)
    assert 'data-stream="/search/rows?q=all&amp;sort=size&amp;form=key"' in kept.text
    rows = answer("/search/rows?q=all&sort=size&form=key", store_at(orders.path)).text
    assert 'href="/search?q=all&amp;form=key&amp;sort=-size"' in rows
    # Widths of columns are those of their heads.
    assert len(re.findall('<th scope="col" class="c-', found.text)) == 7
    parts = answer("/search/rows?q=all", store_at(orders.path)).text
    assert "event: answer" in parts
    assert "ORDER-8" in parts


@pytest.mark.parametrize(
    ("read", "language", "shown"),
    [
        (None, "en", "8 s"),
        (ReadSoFar(1 << 20, 5000, None), "en", "8 s, read 5,000 messages, 1.0 MiB"),
        (
            ReadSoFar(1 << 20, 5000, 4 << 20),
            "en",
            "8 s, read 5,000 messages, 1.0 MiB of at most 4.0 MiB (25%), at most about 24 s left",
        ),
        (
            ReadSoFar(1 << 20, 5000, 4 << 20),
            "zh",
            "8 秒，已读 5,000 条消息，1.0 MiB，最多 4.0 MiB（25%），最多约剩 24 s",
        ),
    ],
)
def test_a_search_that_goes_on_shows_how_much_is_read_and_left(read, language, shown):
    reader = Reader(Preferences(language=language))
    assert progress_text(reader, FoundSoFar((), (), 8000, read)) == shown


def test_times_of_jobs_are_shown_in_the_chosen_zone():
    reader = Reader(Preferences(zone_name="Asia/Shanghai"))
    assert reader.moment("2026-11-20T10:31:02+00:00") == "2026-11-20 18:31:02.000 +08:00"
    for other in ("yesterday", "2026-11-20T10:31:02"):
        assert reader.moment(other) == other


async def test_choosing_goes_back_to_the_page_with_a_cookie(orders):
    async with console_client(store_at(orders.path)) as client:
        chosen = {"language": "zh", "back": "/topics"}
        found = await client.post("/preferences", data=chosen)
        away = {"back": "https://evil.example"}
        away = await client.post("/preferences", data=away)
    assert (found.status_code, found.headers["location"]) == (303, "/topics")
    assert "rl_language=zh" in found.headers["set-cookie"]
    assert away.headers["location"] == "/"


def test_a_page_weighs_less_than_300_kb(tmp_path):
    sent = [Sent(keys=f"all ORDER-{n}", tags="PAY", body=b"x" * 400) for n in range(100)]
    made = make_store(tmp_path / "many", sent)
    found = answer("/search?q=all", store_at(made.path))
    static = answers(
        [f"/static/{name}" for name in sorted(each.name for each in STATIC.iterdir())],
        store_at(made.path),
    )
    assert all(each.status_code == 200 for each in static)
    assert sum(len(each.content) for each in (found, *static)) < 300_000


FILTERED = "/search?topic=Orders&where=body.%24.n+%3E%3D+2&grep=%5B2-5%5D&max=3"


def test_every_form_but_that_of_ids_filters_by_content_and_is_open_when_it_does(orders):
    for form in ("any", "time", "key"):
        closed, shown = answers(
            [f"/search?form={form}", f"{FILTERED}&form={form}"], store_at(orders.path)
        )
        for name in ("where", "grep"):
            assert f'name="{name}" value=""' in closed.text
        assert '<details class="content-filter">' in closed.text
        assert '<details class="content-filter" open>' in shown.text
        assert 'name="where" value="body.$.n &gt;= 2"' in shown.text
        assert 'name="grep" value="[2-5]"' in shown.text
    plain, kept = answers(["/search?form=id", f"{FILTERED}&form=id"], store_at(orders.path))
    assert 'name="where"' not in plain.text
    assert 'name="where" value="body.$.n &gt;= 2"' in kept.text


def test_a_filter_stays_in_older_messages_links_commands_and_other_forms(orders):
    found = answer(FILTERED, store_at(orders.path))
    assert [f"ORDER-{n}" in found.text for n in (5, 4, 3, 2, 1, 8)] == [True] * 3 + [False] * 3
    structure = Structure(found.text)
    (more,) = [link for link in structure.links if "cursor=" in link]
    older = answer(more, store_at(orders.path))
    assert [f"ORDER-{n}" in older.text for n in (2, 1, 5)] == [True, False, False]
    forms = [link for link in structure.links if "form=" in link]
    assert len(forms) == 4
    assert all("where=" in link and "grep=" in link for link in forms)
    assert "--where=body.$.n >= 2" in structure.text
    assert "--grep=[2-5]" in structure.text
    assert "/api/search?topic=Orders&where=body.%24.n" in structure.text


@pytest.mark.parametrize("cookies", [{}, {"rl_script": "1"}], ids=["plain", "script"])
def test_a_wrong_filter_is_an_error_beside_its_form_and_never_an_empty_answer(orders, cookies):
    found = answer("/search?topic=Orders&where=n+%3E", store_at(orders.path), cookies=cookies)
    assert found.status_code == 400
    assert re.search('name="where"[^<>]* value="n &gt;"', found.text)
    assert '<details class="content-filter" open>' in found.text
    structure = Structure(found.text)
    assert "character 4" in structure.text
    assert "Not found" not in structure.text
    rows = answer("/search/rows?topic=Orders&where=n+%3E", store_at(orders.path)).text
    assert "event: failure" in rows
    assert "character 4" in rows


def test_what_a_filter_could_not_look_at_is_in_the_coverage_of_the_page(tmp_path):
    made = make_store(tmp_path / "binary", [Sent(body=b"\x00\xff\x9f\x01")])
    found = answer("/search?topic=Orders&grep=x", store_at(made.path))
    text = Structure(found.text).text
    assert "Incomplete" in text
    assert "the filter could not read the body" in text
    assert "Not found, and everything was searched" not in text


def test_a_filter_that_leaves_out_everything_is_named_as_the_reason(orders):
    found = answer("/search?topic=Orders&grep=nowhere", store_at(orders.path))
    structure = Structure(found.text)
    assert "The filter by content leaves out" in structure.text
    assert "/search?topic=Orders" in structure.links


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("this store has no topic 'x'", "This store has no topic 'x'"),
        ("filter, character 5: a value is expected", "Filter, character 5: a value is expected"),
        ("orders/0/1 was not found", "orders/0/1 was not found"),
        ("'x' is not a topic", "'x' is not a topic"),
        ("order-paid is gone", "order-paid is gone"),
        ("没有主题", "没有主题"),
        ("since 的值不是时间", "since 的值不是时间"),
        ("", ""),
    ],
)
def test_errors_begin_with_a_capital_letter_but_names_stay_as_they_are(text, shown):
    assert capitalized(text) == shown


def test_an_error_on_a_page_begins_with_a_capital_letter(orders):
    found = answer("/search?topic=Ordrs", store_at(orders.path, "s")).text
    assert (
        '<p id="failure">This store has no topic &#39;Ordrs&#39;; did you mean Orders?</p>' in found
    )


def test_of_several_sources_each_is_named_with_the_topic_that_it_lacks(orders, tmp_path):
    other = make_store(tmp_path / "other", [Sent(topic="Ordered")])
    found = answer("/search?topic=Ordrs", store_at(orders.path, "s"), store_at(other.path, "o"))
    assert found.status_code == 404
    assert f"{orders.path}: this store has no topic" in found.text
    assert f"{other.path}: this store has no topic" in found.text
    assert "did you mean Orders" in found.text


def test_an_unknown_topic_leads_to_the_same_search_in_those_that_it_resembles(orders, tmp_path):
    other = make_store(tmp_path / "other", [Sent(topic="Ordered"), Sent(topic="Paid")])
    sources = [store_at(orders.path, "s"), store_at(other.path, "o")]
    links = Structure(answer("/search?topic=Ordrs&tag=PAY", *sources).text).links
    assert [each for each in links if "tag=PAY" in each and "form=" not in each] == [
        "/search?topic=Orders&tag=PAY",
        "/search?topic=Ordered&tag=PAY",
    ]
    assert "/topics" in links[-1:]
    alone = Structure(answer("/search?topic=Ordrs&source=o", *sources).text).links
    assert "/search?topic=Ordered&source=o" in alone
    assert not [each for each in alone if "topic=Orders" in each]


def test_an_address_without_a_page_is_named_and_leads_to_the_first_page(orders):
    found = answer("/nope%1b", store_at(orders.path, "s"))
    assert found.status_code == 404
    assert "Nothing is at &#39;/nope\\\\x1b&#39;: the menu has all pages" in found.text
    assert Structure(found.text).links[-1] == "/"
    chinese = answer("/nope", store_at(orders.path, "s"), **CHINESE)
    assert "处没有页面" in chinese.text


def test_of_a_list_only_what_is_missing_is_said(orders):
    whole = answers(["/topics", "/brokers"], store_at(orders.path, "s"))
    for each in whole:
        assert "Complete" not in each.text
        # That a file is missing is said, although nothing is missing for it.
        assert "is damaged, and was not needed" in each.text
        assert "Parts searched" not in each.text
    gone = answer("/topics", store_at(orders.path, "s"), cluster_at("127.0.0.1:1", "gone")).text
    assert "Incomplete" in gone
    assert "Parts searched" in gone
    assert "127.0.0.1:1" in gone


def test_the_form_of_a_search_is_folded_above_a_message(orders):
    text = answer("/m/s/Orders/-/0/1", store_at(orders.path, "s")).text
    assert '<details class="search-again">' in text
    assert "search-again" not in answer("/search?q=all", store_at(orders.path, "s")).text


def story_of(made, language="en"):
    path = "/m/s/Orders/-/0/0?tab=story"
    text = answer(path, store_at(made.path, "s"), cookies={"rl_language": language}).text
    (timeline,) = re.findall(r'<ol class="timeline">(.*?)</ol>', text, re.DOTALL)
    return timeline


def test_a_story_says_nothing_twice_and_its_positions_are_links(tmp_path):
    one = "0A00000500002A9F0000000000004011"
    dead = Sent(topic="%DLQ%billing", unique_key=one, store_timestamp_ms=NOW_MS + 9)
    made = make_store(tmp_path / "s", [Sent(unique_key=one), dead])
    timeline = story_of(made)
    for said in ("Sent from", "Stored as", "Dead letter of group billing: "):
        assert said in timeline
    for twice in ("Sent sent", "Stored stored", "Dead letter [", "billing</span>"):
        assert twice not in " ".join(re.sub("<[^>]*>", " ", timeline).split())
    assert '<span class="chip">' not in timeline
    assert 'href="/search?q=Orders%2F0%2F0&amp;kind=queue-offset&amp;source=s"' in timeline
    assert "存储为" in story_of(made, "zh")


def test_a_complete_story_says_what_is_not_recorded_and_of_nothing_that_it_failed(tmp_path):
    made = make_store(tmp_path / "s", [Sent()])
    text = answer("/m/s/Orders/-/0/0?tab=story", store_at(made.path, "s")).text
    assert "What was not searched, or is not recorded: " in text
    assert "could not be found out" not in text


@pytest.mark.parametrize(("times", "said"), [(1, "delivered again once"), (2, "again 2 times")])
def test_the_page_of_a_retry_counts_its_deliveries(tmp_path, times, said):
    made = make_store(tmp_path / "s", [Sent("%RETRY%g", reconsume_times=times)])
    assert said in answer("/m/s/%25RETRY%25g/-/0/0", store_at(made.path, "s")).text


def test_the_page_of_a_message_that_waits_has_its_due_time_and_how_far_that_is(
    tmp_path, monkeypatch
):
    topic, named = "SCHEDULE_TOPIC_XXXX", (("REAL_TOPIC", "Orders"), ("DELAY", "18"))
    made = make_store(tmp_path / "s", [Sent(topic, queue_id=17, named=named)])
    texts = []
    for minutes in (2, 180):
        now_ns = (NOW_MS + minutes * 60_000) * 1_000_000
        change_for(monkeypatch, preferences, "time", time_ns=lambda now_ns=now_ns: now_ns)
        texts.append(answer(f"/m/s/{topic}/-/17/0", store_at(made.path, "s")).text)
    assert "2023-11-15 00:13:20.000, in 1 h 58 min" in texts[0]
    assert "2023-11-15 00:13:20.000, 1 h ago" in texts[1]
