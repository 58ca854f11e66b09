"""The console over open sources, asked without a server."""

import asyncio
import dataclasses
import functools
from contextlib import AsyncExitStack, asynccontextmanager
from html.parser import HTMLParser

import fastapi
import httpx
from fastapi.dependencies import models, utils

from rocketlens.console.app import Console
from rocketlens.console.login.viewer import NOBODY, seen_by
from rocketlens.console.sources.sources import open_sources
from rocketlens.decode.rules import BodyRules
from rocketlens.terminal.contexts import Context
from tests.support.console_users import PASSWORD

# What endpoints depend on, and how answers are checked, is the same in each application. To find it
# out takes most of the time in which one is made, and tests make hundreds.
_dependant = functools.cache(utils.get_dependant)
_first = {}
"""Of functions that each application makes anew, the first: others depend on the same."""


def _known_dependant(*, call, own_oauth_scopes=None, parent_oauth_scopes=None, **of):
    assert not own_oauth_scopes
    assert not parent_oauth_scopes
    first = _first.setdefault(getattr(call, "__code__", call), call)
    known = _dependant(call=first, **of)
    # Routes add to it what their router depends on.
    return dataclasses.replace(known, call=call, dependencies=[*known.dependencies])


utils.get_dependant = fastapi.routing.get_dependant = _known_dependant
fastapi.routing.create_model_field = functools.cache(fastapi.routing.create_model_field)


@asynccontextmanager
async def console_client(*contexts, names=(), users=None, audit=None, **options):
    """Give a client of a console over (name, Context) pairs; ``console`` is the application."""
    async with AsyncExitStack() as opened:
        sources = await open_sources(contexts, opened)
        # As in a process of its own: nobody asks when it starts.
        with seen_by(NOBODY):
            app = Console(sources, rules=BodyRules(), names=names, users=users, audit=audit)
        opened.push_async_callback(app.close)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://localhost", **options)
        client.event_hooks = {"request": [_as_a_browser]}
        client.console = app
        yield await opened.enter_async_context(client)
    _forget_endpoints()


async def _as_a_browser(request):
    """Name the site whose page sends a request."""
    request.headers.setdefault("origin", str(request.url.join("/"))[:-1])


def _forget_endpoints():
    """Let applications go: FastAPI remembers thousands of endpoints, and with them what they are
    part of. A hundred applications make each full garbage collection take more than a second.
    """
    for each in vars(models).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()


def answers(paths, *contexts, **options):
    """Give the answers of a console to some paths, one after another."""

    async def ask():
        async with console_client(*contexts, **options) as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(ask())


def answer(path, *contexts, **options):
    """Give the answer of a console to one path."""
    return answers([path], *contexts, **options)[0]


async def log_in(client, name, password=PASSWORD):
    """Log in, for all that the client asks from then on."""
    fields = {"name": name, "password": password}
    assert (await client.post("/login", data=fields)).status_code == 303


def store_at(path, name=None):
    """Give the context of a store directory."""
    return name, Context(store=str(path))


def cluster_at(name_server, name=None):
    """Give the context of a cluster."""
    return name, Context(namesrv=name_server)


class FormReader(HTMLParser):
    """The forms of a page: for each its method, its action, and the values of its fields."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.forms, self._area = [], None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "form":
            self.forms.append((values.get("method", "get"), values.get("action", ""), {}))
        elif tag in {"input", "textarea", "select"} and "name" in values and self.forms:
            self.forms[-1][2][values["name"]] = values.get("value", "")
            self._area = values["name"] if tag == "textarea" else None

    def handle_data(self, text):
        if self._area is not None:
            self.forms[-1][2][self._area] += text

    def handle_endtag(self, tag):
        if tag == "textarea":
            # A line end behind the tag is none of the text.
            fields = self.forms[-1][2]
            fields[self._area] = fields[self._area].removeprefix("\n")
            self._area = None


def post_form(html):
    """Give the action and the fields of the only form of a page that posts, besides those that
    every page has, and those that choose some of a list.
    """
    ((_, action, fields),) = [
        each
        for each in FormReader(html).forms
        if each[0] == "post" and each[1] not in {"/preferences", "/logout", "/redrive/chosen"}
    ]
    return action, fields
