"""The console in a real browser: every page, both languages, both themes, by keyboard alone."""

from urllib.parse import urlencode

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.support.console_client import post_form
from tests.support.console_users import PASSWORD
from tests.support.patience import PATIENCE_S

PAGES = (
    "/",
    "/search?topic=order-paid&max=5",
    "/search?q=order-42",
    "/search?q=NOPE&topic=order-paid",
    "/search?topic=ordr-paid",
    "/search?form=time",
    "/search?topic=order-paid&where=body.%24.amount+%3E+100&grep=ORDER-2&max=5",
    "/search?topic=order-paid&where=body.%24.amount+%3E",
    "/search?topic=order-paid&columns=prop.UNIQ_KEY,body.%24.amount,born,id,keys&max=5",
    "/saved",
    "/saved?q=order-42&topic=order-paid",
    "/topics?all=true",
    "/topics/order-paid",
    "/topics/%25DLQ%25shipping",
    "/groups",
    "/clients",
    "/brokers",
    "/pipeline",
    "/overview",
)
"""Lists have few rows: axe takes 3 s of a processor for 100."""
TELEPHONE = {"width": 360, "height": 740}
TABS = ("body", "properties", "ids", "story")
every_look = pytest.mark.parametrize(
    ("language", "theme", "windows"),
    [
        ("en", "light", [(360, "dark")]),
        *(
            pytest.param(*look, marks=pytest.mark.slow)
            for look in (
                ("zh", "dark", [(360, "light"), (1280, "light")]),
                ("en", "dark", [(1280, "dark"), (2560, "light")]),
                ("zh", "light", [(2560, "dark")]),
            )
        ),
    ],
)
"""Of all rules of accessibility a page is judged once, and of what fits and can be read in windows
of some widths and themes, too.
"""


def message_path(page):
    """Give the address of the first message of a list."""
    return page.locator("tr[data-path]").first.get_attribute("data-path")


def complaints_of(page):
    """Give what axe finds wrong with a page: rules, and the elements that break them."""
    found = Axe().run(page).response["violations"]
    return {each["id"]: [node["html"][:200] for node in each["nodes"][:3]] for each in found}


def width_beyond(page):
    """Give how many pixels of a page are outside of the screen."""
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def cut_texts(page):
    """Give the texts of buttons, titles and fields' names that have no room."""
    return page.evaluate(
        """() => [...document.querySelectorAll(
                "main :is(button, .button, h1, h2, dt, th:not(.c-value), .verdict)")]
            .filter(each => each.checkVisibility() && !each.closest(".visually-hidden"))
            .filter(each => getComputedStyle(each).display !== "inline")
            .filter(each => each.scrollWidth > each.clientWidth + 1)
            .map(each => each.textContent.trim().slice(0, 60))"""
    )


def unreadable_texts(page):
    """Give the elements whose colours are too like each other; axe is in the page already."""
    options = {"runOnly": ["color-contrast"], "resultTypes": ["violations"]}
    found = page.evaluate("options => axe.run(document, options)", options)["violations"]
    return [node["html"][:200] for each in found for node in each["nodes"][:3]]


def misfits_of(page):
    """Give how much of a page is outside of its window, and which texts are cut or unreadable."""
    return width_beyond(page), cut_texts(page), unreadable_texts(page)


def wrong_with(page, windows):
    """Give the rules that a page breaks, and its misfits in windows."""
    found = complaints_of(page)
    # What unfolds must fit, too.
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    size = page.viewport_size
    for width, theme in windows:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        misfits = misfits_of(page)
        if misfits != (0, [], []):
            found[f"{width} {theme}"] = misfits
    page.set_viewport_size(size)
    return found


def one_by_one(open_page, paths, **options):
    """Yield paths with their page, all in one window."""
    page = open_page("/jobs", **options)
    address = page.url.removesuffix("/jobs")
    for path in paths:
        page.goto(address + path, wait_until="load")
        yield path, page


def until(page, condition, arg=None):
    """Wait until a function of the page returns something: the pages allow no eval, which
    Playwright's own waiting needs.
    """
    page.evaluate(
        f"""arg => new Promise((done, fail) => {{
            const condition = {condition};
            const end = performance.now() + {PATIENCE_S * 1000};
            const look = () => condition(arg) ? done()
                : performance.now() > end ? fail(new Error(document.body.innerText.slice(-500)))
                : setTimeout(look, 20);
            look();
        }})""",
        arg,
    )


@pytest.fixture(scope="module")
def acting_pages(console):
    """Give the addresses of all pages that act, a job and an act among them."""
    with httpx.Client(base_url=console, timeout=PATIENCE_S) as client:
        (row,) = client.get("/api/search?q=ORDER-79&topic=order-paid").json()["messages"]
        path, source = row["path"], row["source"]
        (other,) = client.get("/api/search?q=ORDER-80&topic=order-paid").json()["messages"]
        # Not to its topic, whose messages other tests count.
        to_group = f"{path}/resend?to=group&group=shipping"
        draft = {"cluster": source, "topic": "drafts", "body": "{}", "encoding": "text"}
        # So that lists of saved searches have one.
        alarm = {"title": "order 79", "by": "2100-01-01", "group": "shipping"}
        client.post(f"/api/saved-searches?q=ORDER-79&source={source}", json=alarm)
        done = []
        for page, values in ((to_group, {}), ("/send", draft)):
            action, fields = post_form(client.get(page).text)
            form = {**fields, **values, "reason": "a test"}
            done.append(client.post(action or page, data=form).headers["location"])
    return (
        *("/send", f"{path}/edit", f"{path}/resend", f"{path}/resend?to=group", to_group),
        *(f"{path}/consume", f"{path}/consume?group=g&client=c"),
        f"/resend?q=ORDER-79&source={source}",
        *(f"/redrive?group=shipping&source={source}", f"/redrive?group=none&source={source}"),
        *("/jobs", *done),
        *("/", "/saved", "/search?q=ORDER-79", "/resend/chosen"),
        *(f"/compare?chosen={path}", f"/compare?chosen={path}&chosen={other['path']}"),
    )


def chosen_page(open_page, **options):
    """Give the page of two messages that were chosen in a list."""
    page = open_page("/search?topic=order-paid&max=5", **options)
    page.locator("tr[data-path]").first.wait_for()
    for key in "jxjjx":
        page.keyboard.press(key)
    page.locator("#chosen").get_by_role("button").first.click()
    page.wait_for_url("**/resend/chosen")
    return page


def test_two_messages_that_were_chosen_are_compared_by_keyboard_alone(open_page):
    page = open_page("/search?topic=order-paid&tag=PAY&max=5")
    page.locator("tr[data-path]").first.wait_for()
    for key in "jxjx":
        page.keyboard.press(key)
    page.locator("#chosen button[formaction]").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?*")
    # Its number differs in one line of the body, marked on both sides.
    assert page.locator(".lines del").first.inner_text() != ""
    assert page.locator(".lines ins").first.inner_text() != ""
    # On a telephone, too, the two are named above their values.
    page.set_viewport_size(TELEPHONE)
    names = page.locator(".compare thead a")
    assert [each.is_visible() for each in names.all()] == [True, True]


@every_look
def test_no_page_breaks_a_rule_of_accessibility_and_each_fits_its_window(
    open_page, acting_pages, language, theme, windows
):
    message = message_path(open_page("/search?q=order-42"))
    tabs = (f"{message}?tab={tab}" for tab in TABS)
    paths = dict.fromkeys((*PAGES, *tabs, *acting_pages, "/nope", "/search?q=x&since=never"))
    pages = one_by_one(open_page, paths, language=language, theme=theme)
    found = {path: wrong_with(page, windows) for path, page in pages}
    chosen = chosen_page(open_page, language=language, theme=theme)
    found["chosen"] = wrong_with(chosen, windows)
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


@every_look
def test_the_login_breaks_no_rule_of_accessibility_and_fits_its_window(
    open_page, guarded, language, theme, windows
):
    page = open_page("/login?back=/groups", at=guarded, language=language, theme=theme)
    found = {"login": wrong_with(page, windows)}
    # A name of its own: tries of one are counted.
    page.fill("#name", f"nobody-{theme}-{language}")
    page.fill("#password", "wrong")
    page.press("#password", "Enter")
    page.locator("main [role=alert]").wait_for()
    found["refused"] = wrong_with(page, windows)
    log_in(page, "li")
    page.wait_for_url("**/groups")
    found["logged in"] = wrong_with(page, windows)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_lag_and_dead_letters_of_groups_are_on_the_screen_of_a_telephone(open_page):
    page = open_page("/groups", **TELEPHONE)
    row = page.locator("#rows tr").first
    for title in ("Lag", "Dead letters"):
        box = row.locator(f"td[data-label='{title}']").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= TELEPHONE["width"]


def test_the_search_above_a_message_unfolds_by_its_key(open_page):
    page = open_page("/search?q=ORDER-77")
    page.goto(page.url.partition("/search")[0] + message_path(page))
    assert not page.locator(".box").is_visible()
    page.keyboard.press("/")
    page.keyboard.type("ORDER-78")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?*ORDER-78*")


def test_long_ids_and_keys_fit_a_telephone(open_page):
    message = message_path(open_page("/search?topic=long-ids"))
    paths = ("/search?topic=long-ids", *(f"{message}?tab={tab}" for tab in TABS))
    wide = {path: width_beyond(page) for path, page in one_by_one(open_page, paths, **TELEPHONE)}
    assert {path: pixels for path, pixels in wide.items() if pixels > 0} == {}


def test_every_form_of_a_body_can_be_chosen_on_a_telephone(open_page):
    page = open_page("/search?topic=long-ids", **TELEPHONE)
    page.goto(page.url.partition("/search")[0] + message_path(page) + "?tab=body")
    cut = page.evaluate(
        """() => [...document.querySelectorAll(".segments a")].filter(each => {
            const [own, area] = [each, each.parentElement].map(one => one.getBoundingClientRect());
            return own.right > area.right + 1 || own.bottom > area.bottom + 1;
        }).map(each => each.textContent)"""
    )
    assert cut == []
    page.get_by_role("link", name="Base64").click()
    page.get_by_text("e30=").wait_for()


def test_what_scrolls_on_a_telephone_can_be_scrolled_by_keyboard(open_page):
    found = {}
    for path, page in one_by_one(open_page, ("/brokers", "/pipeline"), **TELEPHONE):
        # The first sample comes with the console.
        page.locator("tr[data-path]").first.wait_for()
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        found[path] = complaints_of(page)
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_messages_are_filtered_by_what_is_in_them_by_keyboard_alone(open_page):
    page = open_page("/search?form=time")
    page.keyboard.press("/")
    page.keyboard.type("order-paid")
    filters = page.locator("details.content-filter")
    assert filters.get_attribute("open") is None
    filters.locator("summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("body.$.amount > 100 AND tag = 'REFUND'")
    page.keyboard.press("Tab")
    page.keyboard.type("ORDER-1[02]")
    page.keyboard.press("Enter")
    page.wait_for_url("**where=**")
    # Behind the last row, however these come.
    page.get_by_text("No older messages match.").wait_for()
    # The multiples of three among 100 to 109 and 120 to 129.
    assert page.locator("tr[data-path]").count() == 7
    assert page.locator("details.content-filter").get_attribute("open") is not None


def test_a_message_is_found_and_read_by_keyboard_alone(open_page):
    page = open_page("/")
    page.keyboard.press("/")
    page.keyboard.type("ORDER-77")
    page.keyboard.press("Enter")
    # Keys do something from when the page and its script are loaded.
    page.wait_for_url("**/search?*")
    page.locator("tr[data-path]").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/m/**")
    page.get_by_role("link", name="Body", exact=True).click()
    page.wait_for_url("**?tab=body")
    page.wait_for_load_state()
    assert '"ORDER-77"' in page.locator("pre.content").inner_text()
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    page.locator("#keys").wait_for(state="hidden")
    page.keyboard.press("c")
    until(page, "() => document.getElementById('status').textContent !== ''")
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_a_key_counts_at_once_after_the_list_of_keys_was_closed(open_page):
    page = open_page("/search?q=order-42")
    page.evaluate(
        """() => {
            const list = document.getElementById("keys");
            list.showModal();
            list.close();
            // Nothing was drawn since: the focus is still within the list.
            const key = new KeyboardEvent("keydown", { key: "j", bubbles: true });
            document.activeElement.dispatchEvent(key);
        }"""
    )
    assert page.locator("tr.selected").count() == 1


SHOWN = """() => [...document.querySelectorAll("table.messages tbody")].every(part => {
    const box = part.getBoundingClientRect();
    return box.bottom < 0 || box.top > innerHeight || part.querySelector("tr[data-path]");
})"""
"""Whether all rows on the screen are there."""


def test_the_list_continues_while_it_is_scrolled_and_has_every_message_once(open_page):
    page = open_page("/search?topic=order-paid")
    for parts in (2, 3):
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        until(page, "n => document.querySelectorAll('table.messages tbody').length >= n", parts)
    page.get_by_text("No older messages match.").wait_for()
    seen = set()
    for top in range(0, page.evaluate("document.body.scrollHeight"), 500):
        page.evaluate("top => window.scrollTo(0, top)", top)
        until(page, SHOWN)
        paths = "rows => rows.map(row => row.dataset.path)"
        seen.update(page.locator("tr[data-path]").evaluate_all(paths))
    assert len(seen) == 251


HAS_ROW = """path => [...document.querySelectorAll("tr[data-path]")]
    .some(row => row.dataset.path === path)"""


def test_rows_far_from_the_screen_leave_the_page_and_come_back(open_page):
    page = open_page("/search?topic=order-paid")
    first = message_path(page)
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    until(page, "n => document.querySelectorAll('table.messages tbody').length >= n", 2)
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    until(page, f"path => !({HAS_ROW})(path)", first)
    page.evaluate("window.scrollTo(0, 0)")
    until(page, HAS_ROW, first)


def test_results_stream_into_a_page_that_came_without_them(open_page, console):
    page = open_page("/")
    # What the server sends first where an answer takes longer than it waits.
    page.evaluate(
        """async () => {
            const area = document.createElement("div");
            area.dataset.stream = "/search/rows?q=ORDER-77";
            area.innerHTML = '<section data-stopped="stopped"><span class="spinner"></span>'
                + '<b id="progress"></b><i id="elapsed"></i><button id="stop"></button>'
                + '<ul id="covered"></ul></section><table><tbody id="found"></tbody></table>';
            document.querySelector("main").append(area);
            const script = document.querySelector("script").src.replace(/console.js.*/, "");
            (await import(script + "results.js")).startResults(() => {});
        }"""
    )
    page.locator("table.messages tr[data-path]").wait_for()
    assert "Complete" in page.locator(".verdict-line").inner_text()


def test_what_a_search_has_read_is_shown_while_it_goes_on(open_page):
    page = open_page("/")
    shown = page.evaluate(
        """async () => {
            let events;
            window.EventSource = class extends EventTarget {
                constructor() { super(); events = this; }
                close() {}
            };
            const area = document.createElement("div");
            area.dataset.stream = "/search/rows?topic=order-paid";
            area.innerHTML = '<i id="elapsed"></i><button id="stop"></button>';
            document.querySelector("main").append(area);
            const script = document.querySelector("script").src.replace(/console.js.*/, "");
            (await import(script + "results.js")).startResults(() => {});
            events.dispatchEvent(new MessageEvent("waiting", { data: "2 s, read <b>7</b>" }));
            return document.getElementById("elapsed").textContent;
        }"""
    )
    assert shown == "2 s, read <b>7</b>"


def test_rows_that_come_while_a_search_runs_are_put_at_their_place_by_time(open_page):
    page = open_page("/")
    times = page.evaluate(
        """async () => {
            let events;
            window.EventSource = class extends EventTarget {
                constructor() { super(); events = this; }
                close() {}
            };
            const area = document.createElement("div");
            area.dataset.stream = "/search/rows?topic=order-paid";
            area.innerHTML = '<button id="stop"></button><ul id="covered"></ul>'
                + '<table><tbody id="found"></tbody></table>';
            document.querySelector("main").append(area);
            const script = document.querySelector("script").src.replace(/console.js.*/, "");
            (await import(script + "results.js")).startResults(() => {});
            const row = (time) => `<tr><td><time datetime="${time}">${time}</time></td></tr>`;
            // Queue by queue, each from its newest message on.
            for (const queue of [[9, 5, 1], [8, 5, 2], [10, 0]]) {
                const rows = `<table><tbody>${queue.map(row).join("")}</tbody></table>`;
                const data = `<template data-part="rows">${rows}</template>`;
                events.dispatchEvent(new MessageEvent("found", { data }));
            }
            return [...document.querySelectorAll("#found time")].map((each) => each.textContent);
        }"""
    )
    assert times == ["10", "9", "8", "5", "5", "2", "1", "0"]


def test_what_is_wrong_in_a_filter_is_chosen_in_its_field(open_page):
    for where, wrong in (("amount == 5", "="), ("body.$.amount >", "")):
        page = open_page(f"/search?{urlencode({'topic': 'order-paid', 'where': where})}")
        chosen = page.evaluate(
            """() => {
                const field = document.activeElement;
                const { name, value, selectionStart: at, selectionEnd: end } = field;
                return [name, value.slice(at, end), at];
            }"""
        )
        assert chosen == ["where", wrong, len(where) if not wrong else where.rindex(wrong)]
        assert complaints_of(page) == {}


def test_a_page_is_printed_dark_on_light_and_whole(open_page):
    page = open_page("/search?topic=order-paid", theme="dark")
    page.goto(page.url.partition("/search")[0] + message_path(page) + "?tab=body")
    page.emulate_media(media="print")
    colours = page.evaluate(
        """() => [document.body, document.querySelector(".content")].map(each => {
            const canvas = document.createElement("canvas").getContext("2d");
            return ["color", "backgroundColor"].map(name => {
                canvas.fillStyle = getComputedStyle(each)[name];
                canvas.fillRect(0, 0, 1, 1);
                return canvas.getImageData(0, 0, 1, 1).data[1];
            });
        })"""
    )
    assert all(ink < 80 and paper > 200 for ink, paper in colours), colours
    assert not page.get_by_role("link", name="Send again to one group").is_visible()


def test_a_printed_list_has_room_for_bodies(open_page):
    page = open_page("/search?q=USER-3", width=794)
    page.emulate_media(media="print")
    share = page.evaluate(
        """() => document.querySelector("td.body").offsetWidth
            / document.querySelector("table.messages").offsetWidth"""
    )
    assert share > 0.25


def test_without_a_script_everything_can_be_read(open_page):
    page = open_page("/search?topic=order-paid", script=False)
    assert page.locator("tr[data-path]").count() == 100
    page.get_by_role("link", name="Show older messages").click()
    page.wait_for_url("**cursor=**")
    assert page.locator("tr[data-path]").count() == 100
    page.locator("td.time a").first.click()
    page.locator(".timeline", has_text="Stored").wait_for()
    page.get_by_role("link", name="Body", exact=True).click()
    page.locator("pre.content").wait_for()


def test_a_body_that_is_a_script_is_shown_and_not_run(open_page):
    page = open_page("/search?topic=order-paid")
    path = message_path(page)
    page = open_page(f"{path}?form=text")
    assert "<script>document.title" in page.locator("pre.content").inner_text()
    assert "taken" not in page.title()


def test_language_theme_and_zone_stay_chosen(open_page):
    page = open_page("/topics")
    for label, choice in (("Language", "zh"), ("外观", "dark"), ("时区", "Asia/Shanghai")):
        # Choosing submits a form, which leads back to the page.
        with page.expect_navigation():
            page.get_by_label(label).select_option(choice)
    page.goto(page.url.replace("/topics", "/"))
    assert page.get_by_label("时区").input_value() == "Asia/Shanghai"
    assert page.locator("html[data-theme=dark]").count() == 1
    assert page.get_by_role("heading", name="查找任意一条消息").is_visible()


def test_a_command_line_is_copied(open_page):
    page = open_page("/search?q=ORDER-77&source=store")
    page.locator(".share summary").click()
    page.locator("[data-copy]").nth(1).click()
    page.get_by_text("✓ Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("rocketlens find")


def test_brokers_are_read_and_opened_by_keyboard_alone(open_page):
    page = open_page("/topics")
    page.keyboard.press("b")
    page.wait_for_url("**/brokers")
    row = page.locator("table.brokers tr[data-path]").first
    assert "broker-a" in row.inner_text()
    assert "5.5.0" in row.inner_text()
    page.keyboard.press("j")
    assert page.locator("tr.selected a").inner_text() == "broker-a"


def test_lag_and_rate_are_plotted_and_come_again_while_they_are_looked_at(open_page):
    page = open_page("/brokers")
    page.keyboard.press("p")
    page.wait_for_url("**/pipeline")
    # The first sample comes with the console.
    page.locator("table.pipelines tr[data-path]").wait_for()
    assert page.locator("figure.plot").count() == 3
    page.locator("details summary").first.focus()
    page.keyboard.press("Enter")
    page.evaluate(
        """async () => {
            document.activeElement.blur();
            document.querySelector("table.pipelines").dataset.isOld = "yes";
            document.getElementById("pipeline").dataset.every = "20";
            const script = document.querySelector("script").src.replace(/console.js.*/, "");
            (await import(script + "refresh.js")).startRefresh(() => {});
        }"""
    )
    until(page, "() => !document.querySelector('table.pipelines').dataset.isOld")
    # What was opened stays open.
    assert page.locator("details[open] tbody tr").count() >= 1


def test_topics_are_suggested_in_their_field_and_in_the_box(open_page):
    options = "() => [...document.querySelectorAll('#suggestions option')].map(o => o.value)"
    page = open_page("/")
    page.locator(".box").fill("ORDER-7 topic:ORD")
    until(page, f"() => ({options})().includes('ORDER-7 topic:order-paid')")
    page.locator(".box").fill("ORDER-7")
    until(page, f"() => ({options})().length === 0")
    page.goto(page.url + "search?form=time")
    page.locator("[name=topic]").fill("draf")
    until(page, f"() => ({options})().join() === 'drafts'")
    assert complaints_of(page) == {}


def test_a_list_is_sorted_and_looked_at_live_by_keyboard_alone(open_page):
    page = open_page("/topics")
    page.get_by_role("link", name="Messages", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics?sort=-messages")
    counts = page.locator("#rows td:nth-of-type(3)").all_inner_texts()
    numbers = [int(each.replace(",", "")) for each in counts if each != "?"]
    assert numbers == sorted(numbers, reverse=True)
    page.get_by_role("link", name="Refresh every 10 s").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**live=true")
    page.locator("input.filter").fill("order-paid")
    page.evaluate(
        """async () => {
            document.activeElement.blur();
            document.querySelector("#rows").dataset.isOld = "yes";
            document.getElementById("listed").dataset.every = "20";
            const script = document.querySelector("script").src.replace(/console.js.*/, "");
            (await import(script + "refresh.js")).startRefresh(() => {});
        }"""
    )
    until(page, "() => !document.querySelector('#rows').dataset.isOld")
    # What was filtered stays so.
    shown = page.locator("#rows tr:visible th").all_inner_texts()
    assert shown
    assert all("order-paid" in each for each in shown)
    assert complaints_of(page) == {}


def test_the_login_works_without_a_script(open_page, guarded):
    page = open_page("/topics", at=guarded, script=False)
    page.fill("#name", "li")
    page.fill("#password", "wrong")
    page.press("#password", "Enter")
    page.locator("[role=alert]").wait_for()
    log_in(page, "li")
    page.locator("form[action='/logout'] button").click()
    page.locator("#password").wait_for()


def test_what_was_typed_is_there_again_on_a_page_of_the_same_form(open_page):
    page = open_page("/send")
    typed = {"topic": "drafts", "tags": "A", "body": '{"sum": 5}\n第二行', "reason": "a test"}
    for name, text in typed.items():
        page.locator(f"[name={name}]").fill(text)
    page.locator("[name=encoding]").select_option("base64")
    page.locator("select[name=zone]").select_option("Asia/Shanghai")
    kept = page.locator("#status", has_text="The form has what you typed before.")
    kept.wait_for(state="attached")
    found = {name: page.locator(f"[name={name}]").input_value() for name in typed}
    assert found == typed
    assert page.locator("[name=encoding]").input_value() == "base64"
    page.locator("nav a[href='/jobs']").click()
    page.wait_for_url("**/jobs")
    page.goto(page.url.replace("/jobs", "/send"))
    assert page.locator("[name=body]").input_value() == ""


def log_in(page, user):
    """Log in where a page asks for it."""
    page.fill("#name", user)
    page.fill("#password", PASSWORD)
    page.press("#password", "Enter")


@pytest.mark.parametrize(("user", "title"), [("li", "my order"), ("wu", "order-42")])
def test_what_was_typed_is_there_again_after_a_new_login_of_the_same_user(
    open_page, guarded, user, title
):
    page = open_page("/saved?q=order-42", at=guarded)
    log_in(page, "li")
    page.wait_for_url("**/saved?q=order-42")
    page.fill("[name=title]", "my order")
    page.context.clear_cookies(name="rl_session")
    page.locator("form[data-keeps] button").click()
    page.locator("main [role=alert]", has_text="Your session has ended").wait_for()
    log_in(page, user)
    page.wait_for_url("**/saved?q=order-42")
    assert page.locator("[name=title]").input_value() == title


def test_an_order_is_found_and_sent_to_one_group_by_keyboard_alone(open_page):
    page = open_page("/", language="zh")
    page.keyboard.press("/")
    page.keyboard.type("ORDER-81")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?*")
    page.locator("tr[data-path]").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/m/**")
    page.locator("a[data-key=r]").wait_for()
    page.keyboard.press("r")
    page.wait_for_url("**/resend?to=group")
    page.keyboard.press("/")
    page.keyboard.type("shipping")
    page.keyboard.press("Enter")
    page.wait_for_url("**group=shipping**")
    page.get_by_text("只有消费组 shipping").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("ticket 7")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    page.locator("#job strong", has_text="已发送 1，失败 0，结果未知 0，剩余 0").wait_for()


def test_messages_are_chosen_and_sent_again_by_keyboard_alone(open_page):
    page = open_page("/search?topic=order-paid&tag=REFUND")
    page.locator("tr[data-path]").first.wait_for()
    assert not page.locator("#chosen").is_visible()
    for key in "jxjxjjxx":
        page.keyboard.press(key)
    form = page.locator("#chosen")
    assert form.locator("output").inner_text() == "2 chosen:"
    wanted = page.locator("tr[data-path]").evaluate_all(
        "rows => rows.slice(0, 2).map(row => row.dataset.path)"
    )
    # The box that has the focus is no text: keys count.
    page.keyboard.press("k")
    form.get_by_role("button", name="Send these again").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/resend/chosen")
    page.get_by_text("Messages: 2.").wait_for()
    hidden = page.locator("form[action='/resend/chosen/start'] input[name=chosen]")
    assert hidden.evaluate_all("all => all.map(each => each.value)") == wanted
    page.get_by_label("Only to this group").fill("shipping")
    page.keyboard.press("Enter")
    page.get_by_text("only group shipping").wait_for()
    # Its script moves the focus, which the key needs.
    page.wait_for_load_state()
    page.locator("input[name=reason]").fill("ticket 9")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    page.locator("#job strong", has_text="2 sent, 0 failed, 0 unknown, 0 left").wait_for()


def test_dead_letters_are_read_and_chosen_by_keyboard_alone(open_page, console):
    sources = httpx.get(f"{console}/api/sources").json()["sources"]
    (source,) = [each["name"] for each in sources if each["kind"] == "cluster"]
    page = open_page(f"/redrive?group=shipping&source={source}")
    assert "dead" in page.locator("table.plan td.body").first.inner_text()
    assert not page.locator("#chosen").is_visible()
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert page.locator("#chosen output").inner_text() == "1 chosen:"
    page.locator("#chosen").get_by_role("button", name="Send these again").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/redrive/chosen")
    assert page.get_by_text("Messages: 1.").is_visible()
    assert page.locator("form[action='/redrive/chosen/start'] input[name=chosen]").count() == 1
    assert complaints_of(page) == {}
    page.locator("tr[data-path] a").first.click()
    page.wait_for_url("**/m/**")


def test_chosen_rows_stay_in_the_page_however_far_it_is_scrolled_until_none_is_chosen(open_page):
    page = open_page("/search?topic=order-paid")
    first = message_path(page)
    page.locator("input[form=chosen]").first.check()
    for parts in (2, 3):
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        until(page, "n => document.querySelectorAll('table.messages tbody').length >= n", parts)
    page.locator("input[form=chosen]").last.check()
    assert page.locator("#chosen output").inner_text() == "2 chosen:"
    chosen = page.evaluate("new FormData(document.getElementById('chosen')).getAll('chosen')")
    assert (len(chosen), chosen[0]) == (2, first)
    page.get_by_role("button", name="Choose none").click()
    page.locator("#chosen").wait_for(state="hidden")
    assert page.locator("input[form=chosen]:checked").count() == 0


def test_without_a_script_messages_are_chosen_too(open_page):
    page = open_page("/search?topic=order-paid", script=False)
    for number in (3, 5):
        page.locator("input[form=chosen]").nth(number).check()
    page.locator("#chosen button").first.click()
    page.wait_for_url("**/resend/chosen")
    assert page.get_by_text("Messages: 2.").is_visible()


def test_a_search_is_narrowed_by_a_count_beside_its_answer(open_page):
    page = open_page("/search?topic=order-paid")
    assert page.get_by_text("of this page only").is_visible()
    link = page.locator(".facets a", has_text="REFUND")
    link.click()
    page.wait_for_url("**tag=REFUND")
    # Rows come while the search runs.
    page.locator(".verdict").wait_for()
    tags = page.locator("td.tag").evaluate_all("all => all.map(each => each.textContent)")
    assert set(tags) == {"REFUND"}
    assert page.locator(".facets a", has_text="REFUND").count() == 0


def test_the_first_page_has_the_state_of_the_sources_and_the_searches_of_this_browser(open_page):
    page = open_page("/search?q=ORDER-77")
    page.locator("tr[data-path]").first.wait_for()
    page.goto(page.url.partition("/search")[0])
    page.locator("#recent a", has_text="ORDER-77").wait_for()
    page.locator("#state li.state").first.wait_for()
    assert page.locator("#state li.state").count() == 2
    assert complaints_of(page) == {}
    page.locator("#recent a", has_text="ORDER-77").click()
    page.wait_for_url("**/search?q=ORDER-77")


def test_a_search_is_narrowed_to_the_time_of_a_bar_or_of_several(open_page):
    page = open_page("/search?topic=order-paid&max=50")
    plot = page.locator("svg.bars")
    plot.wait_for()
    counts = plot.locator("title").evaluate_all(
        "all => all.map(e => +e.textContent.split(': ').pop())"
    )
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 1, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    assert plot.locator("a.drawn").count() == len(counts)
    page.mouse.up()
    page.wait_for_url("**since=**until=**")
    # Rows come before the answer is whole.
    page.locator(".verdict").wait_for()
    # Bars are of all messages of the topic, and rows of one page.
    assert (page.locator("tr[data-path]").count(), sum(counts)) == (50, 251)
    plot.wait_for()
    last = plot.locator("a", has=page.locator(".bar")).last
    number = int(last.locator("title").text_content().split(": ")[-1])
    assert complaints_of(page) == {}
    last.focus()
    assert last.get_attribute("aria-label").endswith(f": {number} messages")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    until(page, "n => document.querySelectorAll('tr[data-path]').length === n", number)


def test_a_search_is_saved_opened_and_deleted_by_keyboard_alone(open_page):
    page = open_page("/search?topic=order-paid&tag=REFUND")
    page.locator("tr[data-path]").first.wait_for()
    page.keyboard.press("s")
    assert page.locator("#save input[name=title]").input_value() == "order-paid"
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("refunds")
    page.keyboard.press("Enter")
    page.wait_for_url("**/saved")
    row = page.locator("tr[data-path]", has_text="refunds")
    assert "tag:REFUND" in row.inner_text()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?*tag=REFUND")
    assert page.get_by_text("★ Saved as refunds").is_visible()
    page.goto(page.url.partition("/search")[0])
    assert page.get_by_role("link", name="refunds").is_visible()
    # Here is no search to save: the list.
    page.keyboard.press("s")
    page.wait_for_url("**/saved")
    page.get_by_role("button", name="Delete refunds").focus()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.get_by_role("link", name="refunds").count() == 0
