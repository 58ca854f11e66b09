"""No request makes the console fail: whatever its values are, the answer is one or says why not."""

import asyncio
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.console_client import console_client, store_at
from tests.support.effort import sized
from tests.support.made_stores import Sent, make_store

NAMES = ("q", "topic", "kind", "tag", "since", "until", "source", "max", "cursor", "zone", "form")
KNOWN = ("k", "Orders", "s", "key", "auto", "*", "2h", "now", "Orders/0/0", "-1", "9" * 30, "id:x")
TEXT = st.sampled_from(KNOWN) | st.text(max_size=40)
PART = st.sampled_from(("s", "Orders", "-", "0", "1")) | st.text(min_size=1, max_size=12)
QUERY = st.lists(st.tuples(st.sampled_from(NAMES), TEXT), max_size=5)
LISTS = st.sampled_from(
    ("/search", "/search/more", "/search/rows", "/api/search", "/api/search/stream", "/topics",
     "/api/export", "/groups", "/api/topics", "/api/groups", "/preferences")
)  # fmt: skip
MESSAGES = st.builds(
    lambda before, parts, after: before + "/".join(quote(each, safe="") for each in parts) + after,
    st.sampled_from(("/m/", "/api/message/", "/api/story/")),
    st.lists(PART, min_size=5, max_size=5),
    st.sampled_from(("", "/body")),
)
REQUESTS = st.lists(st.tuples(LISTS | MESSAGES, QUERY), min_size=20, max_size=20)


def test_no_request_makes_the_console_fail(tmp_path):
    made = make_store(tmp_path / "s", [Sent(keys="k", body=b"%d" % n) for n in range(3)])

    @settings(max_examples=sized(7, 300))
    @given(REQUESTS)
    def ask(requests):
        async def run():
            async with console_client(store_at(made.path, "s")) as client:
                for path, query in requests:
                    found = await client.get(path, params=query)
                    assert found.status_code < 500, (path, query, found.text[:300])

        asyncio.run(run())

    ask()
