"""The pages that act: what would be done, a form that does it once, and what became of it."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from rocketlens import limits
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.console.act.act_values import DEFAULT_RATE, JOB_ROWS
from rocketlens.console.act.acting import Acting
from rocketlens.console.act.forms import form_of, is_name, new_name
from rocketlens.console.act.permission import ActRefused, check_may_act, may_send
from rocketlens.console.act.single_acts import NewMessage, SingleActs, form_fields
from rocketlens.console.api import MESSAGE
from rocketlens.console.failures import failure_of
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.pages import Addressed, Pages, Preferred
from rocketlens.console.preferences import Preferences
from rocketlens.console.sources.sources import ClusterOfConsole
from rocketlens.console.sources.visible import namespace_of
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.group import group_of_topic

SEE_OTHER: Final = 303
Name = Annotated[str, Path(max_length=limits.MAX_CONSOLE_REASON)]
Group = Annotated[str, Query(max_length=limits.MAX_TOPIC_CHARACTERS)]
JobFilter = Literal["", "sent", "failed", "unknown", "left"]
PageNumber = Annotated[int, Query(ge=0, le=limits.MAX_RESEND_MESSAGES)]


def rate_of(form: Mapping[str, str]) -> int:
    """Return the messages a second that a form asks for.

    :raises BadInput: if it is no number.
    """
    text = form.get("rate", str(DEFAULT_RATE))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadInput("messages a second: expected a number")
    return int(text)


class ActPages:
    """Renders pages that act."""

    def __init__(self, pages: Pages, acting: Acting, single: SingleActs) -> None:
        self.pages: Final = pages
        self.single: Final = single
        self.acting: Final = acting

    async def resend(
        self,
        request: Request,
        preferences: Preferences,
        address: MessageAddress,
        asked: Mapping[str, str],
        error: Exception | None = None,
    ) -> HTMLResponse:
        """Return the page that sends one message again; with an error that is why it did not."""
        to = "group" if asked.get("to") == "group" else "topic"
        group = ""
        if to == "group":
            group = asked.get("group", self._group_of(address)).strip()
        plan = None
        groups: list[str] = []
        try:
            if to == "group" and not group:
                groups = await self._groups(address, asked.get("cluster", ""))
            else:
                found, message = await self.acting.message_plan(
                    request, address, group=group, cluster=asked.get("cluster", "")
                )
                plan = await self.acting.shown(found, message)
        except (RocketLensError, OSError) as wrong:
            error = error or wrong
        return self.page(
            "act_resend.html",
            request,
            preferences,
            error,
            plan=plan,
            to=to,
            group=group,
            groups=groups,
            cluster=asked.get("cluster", ""),
            reason=asked.get("reason", ""),
            address=address,
            back=_message_path(request),
            origin=self.acting.sources.named(address.source),
        )

    def _group_of(self, address: MessageAddress) -> str:
        """Return the group whose retry or dead letter a message is; empty if it is none."""
        namespace = namespace_of(self.acting.sources.named(address.source))
        return group_of_topic(without_namespace(namespace, address.topic)) or ""

    async def _groups(self, address: MessageAddress, cluster: str) -> list[str]:
        origin = self.acting.sources.named(address.source)
        names = [origin.name] if origin.kind == "cluster" else [cluster] if cluster else []
        found = await self.pages.look_up.groups(names)
        return sorted({each.name for each in found.groups})

    async def consume(
        self,
        request: Request,
        preferences: Preferences,
        address: MessageAddress,
        asked: Mapping[str, str],
        error: Exception | None = None,
    ) -> HTMLResponse:
        """Return the page that has a client consume a message: clients to choose from, or one."""
        group, client_id = asked.get("group", ""), asked.get("client", "")
        found = None
        try:
            source = self.acting.sources.named(address.source)
            check_may_act(request, source, address.topic)
            if not (group and client_id):
                found = await self.pages.look_up.groups([address.source], group or None)
        except (RocketLensError, OSError) as wrong:
            error = error or wrong
        return self.page(
            "act_consume.html",
            request,
            preferences,
            error,
            address=address,
            back=_message_path(request),
            group=group,
            client=client_id,
            found=found,
            form_name=new_name(),
            reason=asked.get("reason", ""),
        )

    def send(
        self,
        request: Request,
        preferences: Preferences,
        fields: Mapping[str, str],
        error: Exception | None = None,
        back: str = "",
    ) -> HTMLResponse:
        """Return the form for a new message, with what its fields have."""
        clusters = [
            each.name
            for each in self.acting.sources
            if isinstance(each.opened, ClusterOfConsole) and each.opened.access is not None
        ]
        if not clusters:
            error = error or ActRefused("this console has no cluster that messages can be sent to")
        empty = dict.fromkeys(("topic", "tags", "keys", "properties", "body", "reason"), "")
        return self.page(
            "act_send.html",
            request,
            preferences,
            error,
            clusters=clusters,
            fields={**empty, "encoding": "text", "cluster": "", **fields},
            form_name=new_name(),
            back=back,
        )

    def page(
        self,
        name: str,
        request: Request,
        preferences: Preferences,
        error: Exception | None = None,
        **values: Any,
    ) -> HTMLResponse:
        """Return a page, with why something was not done."""
        failure = None if error is None else failure_of(error)
        return self.pages.page(
            name,
            request,
            preferences,
            200 if failure is None else failure.status,
            error=None if failure is None else failure.answer.error,
            **values,
        )

    async def job(
        self, request: Request, preferences: Preferences, name: str, state: str, page: int
    ) -> HTMLResponse:
        """Return the page of a job, or of a single act."""
        if is_name(name) and self.single.acts.has(name):
            act = await self.single.act(name)
            return self.pages.page("act.html", request, preferences, act=act)
        job = await self.acting.job(name, state=state, page=page)
        return self.pages.page(
            "job.html", request, preferences, job=job, state=state, number=page, rows=JOB_ROWS
        )


def _message_path(request: Request) -> str:
    """Return the address of the message whose page this belongs to, as it was asked for."""
    path: bytes = request.scope.get("raw_path") or quote(request.url.path).encode()
    return path.decode("ascii").partition("?")[0].rpartition("/")[0]


def single_routes(act: ActPages) -> APIRouter:
    """Return the routes of pages that act on one message."""
    routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @routes.get("/m" + MESSAGE + "/consume")
    async def consume(request: Request, preferences: Preferred, address: Addressed) -> Response:
        return await act.consume(request, preferences, address, request.query_params)

    @routes.post("/m" + MESSAGE + "/consume")
    async def consume_now(request: Request, preferences: Preferred, address: Addressed) -> Response:
        form = await form_of(request)
        try:
            name = await act.single.consume(
                request,
                address,
                group=form.get("group", ""),
                client_id=form.get("client", ""),
                name=form.get("name", ""),
                reason=form.get("reason", ""),
            )
        except (RocketLensError, OSError) as error:
            return await act.consume(request, preferences, address, form, error)
        return RedirectResponse(f"/jobs/{name}", SEE_OTHER)

    @routes.get("/m" + MESSAGE + "/edit")
    async def edit(request: Request, preferences: Preferred, address: Addressed) -> Response:
        source = act.acting.sources.named(address.source)
        if not may_send(request, act.acting.sources, source, address.topic):
            check_may_act(request, source, address.topic)
        fields = form_fields(await act.pages.look_up.unmasked(address))
        if source.kind == "cluster":
            fields["cluster"] = source.name
        return act.send(request, preferences, fields, back=_message_path(request))

    @routes.get("/send")
    async def send(request: Request, preferences: Preferred) -> Response:
        return act.send(request, preferences, request.query_params)

    @routes.post("/send")
    async def send_now(request: Request, preferences: Preferred) -> Response:
        form = await form_of(request)
        try:
            name = await act.single.send(
                request,
                form.get("cluster", ""),
                NewMessage.of_form(form),
                name=form.get("name", ""),
                reason=form.get("reason", ""),
            )
        except (RocketLensError, OSError) as error:
            return act.send(request, preferences, form, error)
        return RedirectResponse(f"/jobs/{name}", SEE_OTHER)

    return routes


def act_routes(act: ActPages) -> APIRouter:
    """Return the routes of all pages that act."""
    routes = single_routes(act)

    @routes.get("/m" + MESSAGE + "/resend")
    async def resend(request: Request, preferences: Preferred, address: Addressed) -> Response:
        return await act.resend(request, preferences, address, request.query_params)

    @routes.post("/m" + MESSAGE + "/resend")
    async def resend_now(request: Request, preferences: Preferred, address: Addressed) -> Response:
        form = await form_of(request)
        try:
            plan, _ = await act.acting.message_plan(
                request, address, group=form.get("group", ""), cluster=form.get("cluster", "")
            )
            name = await act.acting.start(
                request,
                plan,
                name=form.get("name", ""),
                reason=form.get("reason", ""),
                digest=form.get("digest", ""),
                rate=DEFAULT_RATE,
            )
        except (RocketLensError, OSError) as error:
            return await act.resend(request, preferences, address, form, error)
        return RedirectResponse(f"/jobs/{name}", SEE_OTHER)

    @routes.get("/jobs")
    async def jobs(request: Request, preferences: Preferred) -> Response:
        found = await act.acting.all_jobs()
        return act.pages.page("jobs.html", request, preferences, found=found)

    @routes.get("/jobs/{name}")
    async def job(
        request: Request,
        preferences: Preferred,
        name: Name,
        state: JobFilter = "",
        page: PageNumber = 0,
    ) -> Response:
        return await act.job(request, preferences, name, state, page)

    @routes.post("/jobs/{name}/{verb}")
    async def change(
        request: Request, name: Name, verb: Literal["pause", "resume", "stop"]
    ) -> Response:
        form = await form_of(request)
        await act.acting.change(request, name, verb, rate=rate_of(form))
        return RedirectResponse(f"/jobs/{name}", SEE_OTHER)

    return routes
