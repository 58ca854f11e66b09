"""The console over a large store: a pasted key, many users, and a long list."""

import asyncio
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx
from playwright.sync_api import sync_playwright

from bench.broker import anonymous_mib
from bench.report import goal, table
from bench.synthetic import TOPIC, SyntheticStore

if TYPE_CHECKING:
    from playwright.sync_api import Page

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PASTED, USERS, SEARCHES_OF_EACH = 20, 50, 10
ROWS, QUICK_ROWS = 100_000, 5_000
FIRST_ROW_MS, USERS_P95_S, PAGE_KIB, PROCESS_MIB, FRAME_MS = 300, 1.0, 300, 250, 250
_PATIENCE_MS: Final = 600_000
# Scrolls to the end again and again; frames that come late are what a reader feels.
_SCROLL: Final = """async (rows) => {
  let longest = 0, last = performance.now(), isDone = false;
  const frame = (now) => {
    longest = Math.max(longest, now - last); last = now;
    if (!isDone) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  let loaded = 0;
  const table = document.querySelector("table.messages");
  const count = new MutationObserver((changes) => {
    for (const change of changes) for (const body of change.addedNodes) loaded += body.rows.length;
  });
  count.observe(table, { childList: true });
  const began = performance.now();
  while (loaded < rows) {
    if (!document.querySelector("[data-more]")) throw new Error(`the list ends after ${loaded}`);
    window.scrollTo(0, document.body.scrollHeight);
    await new Promise((resume) => setTimeout(resume, 10));
  }
  const seconds = (performance.now() - began) / 1000;
  for (let part = 20; part >= 0; part -= 1) {
    window.scrollTo(0, document.body.scrollHeight * part / 20);
    await new Promise((resume) => requestAnimationFrame(() => setTimeout(resume, 50)));
  }
  isDone = true;
  return { loaded, seconds, longest, nodes: document.querySelectorAll("tr").length };
}"""


class Scrolled(NamedTuple):
    """A list read to its end: rows received, and rows in the page at the end."""

    loaded: int
    seconds: float
    longest_frame_ms: float
    rows_held: int


def chromium() -> str | None:
    """Return the path of the system's Chromium, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def report(store: SyntheticStore, entries: int, *, is_quick: bool) -> Iterator[str]:
    """Measure, and return the lines of the section."""
    browser = chromium()
    if browser is None:
        yield "  no Chromium was found"
        return
    chosen = random.Random(7)
    with running("--store", str(store.path)) as (address, process):
        waits = sorted(asyncio.run(_searches(address, store, chosen)))
        with sync_playwright() as playwright:
            window = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = window.new_page()
            page.set_default_timeout(_PATIENCE_MS)
            kib = _page_kib(page, address, store)
            first_rows = [_first_row_ms(page, address, store, chosen) for _ in range(PASTED)]
            scrolled = _scrolled(page, address, QUICK_ROWS if is_quick else ROWS)
            window.close()
        mib = anonymous_mib(process.pid)
    first_row = statistics.median(first_rows)
    p95 = waits[len(waits) * 95 // 100]
    yield f"  {store.messages:,} messages, {entries:,} keys in the index"
    rows = [
        ("a pasted key to its row on the screen, median ms", f"{first_row:.0f}"),
        ("the longest of them", f"{max(first_rows):.0f}"),
        (f"{USERS} users search at once, p50 s", f"{statistics.median(waits):.2f}"),
        ("p95 s", f"{p95:.2f}"),
        ("weight of a page with its row, KiB", f"{kib:.0f}"),
        ("memory of the console's process, mapped files aside, MiB", f"{mib:.0f}"),
        (f"{scrolled.loaded:,} rows scrolled into, s", f"{scrolled.seconds:.1f}"),
        ("its longest frame, ms", f"{scrolled.longest_frame_ms:.0f}"),
        ("rows that the page then holds", f"{scrolled.rows_held:,}"),
    ]
    yield from table(("console", "figure"), rows)
    text = f"first row: {first_row:.0f} ms, wanted under {FIRST_ROW_MS}"
    yield goal(is_met=first_row < FIRST_ROW_MS, text=text)
    text = f"{USERS} users: p95 {p95:.2f} s, wanted under {USERS_P95_S:.0f}"
    yield goal(is_met=p95 < USERS_P95_S, text=text)
    yield goal(is_met=kib < PAGE_KIB, text=f"page: {kib:.0f} KiB, wanted under {PAGE_KIB}")
    yield goal(is_met=mib < PROCESS_MIB, text=f"process: {mib:.0f} MiB, wanted under {PROCESS_MIB}")
    frame = scrolled.longest_frame_ms
    text = f"scrolling: longest frame {frame:.0f} ms, wanted under {FRAME_MS}"
    yield goal(is_met=frame < FRAME_MS, text=text)


@contextmanager
def running(*source: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run a console of a source; yield its address and process."""
    words = ["-m", "rocketlens", "console", *source, "--bind", "127.0.0.1:0"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            yield process.stdout.readline().split()[1].rstrip("/,"), process
        finally:
            process.terminate()


async def _searches(address: str, store: SyntheticStore, chosen: random.Random) -> list[float]:
    """Return the seconds of each search; users search again after each answer."""

    async def search_again_and_again(client: httpx.AsyncClient) -> list[float]:
        taken = []
        for _ in range(SEARCHES_OF_EACH):
            key = store.key(chosen.randrange(store.messages))
            began = time.perf_counter()
            answer = await client.get("/api/search", params={"q": key})
            taken.append(time.perf_counter() - began)
            if len(answer.json()["messages"]) != 1:
                message = f"{key} was not found: {answer.text[:300]}"
                raise AssertionError(message)
        return taken

    async with httpx.AsyncClient(base_url=address, timeout=_PATIENCE_MS / 1000) as client:
        await client.get("/api/search", params={"q": store.key(0)})
        users = [search_again_and_again(client) for _ in range(USERS)]
        return [one for each in await asyncio.gather(*users) for one in each]


def _page_kib(page: "Page", address: str, store: SyntheticStore) -> float:
    """Return the KiB that a browser with an empty cache loads for an answer, compressed."""
    sizes = []
    page.on("response", lambda response: sizes.append(response.request.sizes()))
    page.goto(f"{address}/search?q={store.key(1)}", wait_until="networkidle")
    return sum(each["responseBodySize"] + each["responseHeadersSize"] for each in sizes) / 1024


def _first_row_ms(
    page: "Page", address: str, store: SyntheticStore, chosen: random.Random
) -> float:
    page.goto(address, wait_until="load")
    box = page.locator("input[name=q]").first
    box.fill(store.key(chosen.randrange(store.messages)))
    began = time.perf_counter()
    box.press("Enter", no_wait_after=True)
    page.wait_for_selector("tr[data-path]")
    return (time.perf_counter() - began) * 1000


def _scrolled(page: "Page", address: str, rows: int) -> Scrolled:
    page.goto(f"{address}/search?topic={TOPIC}", wait_until="load")
    page.wait_for_selector("[data-more]", state="attached")
    found = page.evaluate(_SCROLL, rows)
    return Scrolled(found["loaded"], found["seconds"], found["longest"], found["nodes"])
