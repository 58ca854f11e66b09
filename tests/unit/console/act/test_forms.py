"""Forms have names of the server's own, and requests have bounds."""

import asyncio

import pytest

from rocketlens import limits
from rocketlens.console.act.forms import checked_name, checked_reason, is_name, new_name
from rocketlens.errors import BadInput
from tests.support.console_client import console_client, store_at
from tests.support.made_stores import Sent, make_store

A_NAME = "20260101T000000-000000000000"


def test_names_are_new_and_fit_for_files():
    names = {new_name() for _ in range(100)}
    assert len(names) == 100
    assert all(map(is_name, names))


@pytest.mark.parametrize(
    "text", ["", "../x", "20260101T000000-00000000000G", "20260101T000000-000000000000/"]
)
def test_what_was_not_made_here_is_no_name(text):
    with pytest.raises(BadInput):
        checked_name(text)


def test_a_reason_is_one_line_and_bounded():
    assert checked_reason(" a\n reason ") == "a reason"
    for wrong in ("", " \n", "x" * (limits.MAX_CONSOLE_REASON + 1)):
        with pytest.raises(BadInput):
            checked_reason(wrong)


@pytest.mark.parametrize("path", ["/api/resend", "/jobs/x/stop"])
def test_a_body_over_its_bound_is_refused_however_it_comes(tmp_path, path):
    store = store_at(make_store(tmp_path / "s", [Sent(keys="k")]).path, "s")
    kind = "application/json" if path.startswith("/api") else "application/x-www-form-urlencoded"
    piece = b"x" * (1 << 20)

    async def pieces():
        for _ in range(limits.MAX_CONSOLE_BODY_BYTES // len(piece) + 1):
            yield piece

    async def ask():
        async with console_client(store) as client:
            headers = {"content-type": kind}
            whole = await client.post(
                path, content=piece * 17, headers={**headers, "content-length": str(17 << 20)}
            )
            chunked = await client.post(path, content=pieces(), headers=headers)
            return whole.status_code, chunked.status_code

    assert asyncio.run(ask()) == (413, 413)
