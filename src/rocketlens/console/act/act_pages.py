"""The pages that act: what would be done, a form that does it once, and its outcome."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Final, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from rocketlens import limits
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.console.act.act_values import JOB_ROWS, ActValue
from rocketlens.console.act.actions import Actions, NewMessage, form_fields
from rocketlens.console.act.jobs import DEFAULT_RATE, Order, new_name
from rocketlens.console.act.permission import ActRefused, check_may_act, may_send
from rocketlens.console.act.plans import ResendOptions, ResendPlan
from rocketlens.console.api import MESSAGE
from rocketlens.console.forms import form_of, form_pairs_of
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.pages import SEE_OTHER, Pages
from rocketlens.console.preferences import Preferences, local_path
from rocketlens.console.search.parameters import Addressed, Asked, Preferred
from rocketlens.console.search.question import Question
from rocketlens.console.sources.sources import ClusterOfConsole
from rocketlens.console.sources.visible import namespace_of
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.life import group_of_topic
from rocketlens.model.rocketmq import is_group_topic

CHOSEN: Final = "chosen"
"""The field of a form that is there for each message that was chosen."""
_JobName = Annotated[str, Path(max_length=limits.MAX_CONSOLE_REASON)]
_Group = Annotated[str, Query(max_length=limits.MAX_TOPIC_CHARACTERS)]
_Most = Annotated[int, Query(ge=1, le=limits.MAX_RESEND_MESSAGES)]
_DIGITS: Final = 8
"""Fewer of a number in a form: no plan has so many messages."""
MakePlan = Callable[[], Awaitable[ResendPlan]]
Batch = tuple[MakePlan, Mapping[str, object]]
"""Makes the plan of a job with several messages, and what its page shows beside the plan."""


def _rate_of(form: Mapping[str, str]) -> int:
    """Return the messages a second that a form asks for.

    :raises BadInput: if it is not a number.
    """
    text = form.get("rate", str(DEFAULT_RATE))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadInput("messages a second: expected a number")
    return int(text)


def _order_of(form: Mapping[str, str]) -> Order:
    """Return the order of a form; errors as `Order.checked`."""
    return Order.checked(
        form.get("name", ""), form.get("reason", ""), form.get("digest", ""), _rate_of(form)
    )


def _number_of(text: str) -> int:
    """Return a number of a form; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0


def _message_path(request: Request) -> str:
    """Return the address of the message whose page this belongs to, as it was asked for."""
    path: bytes = request.scope.get("raw_path") or quote(request.url.path).encode()
    return path.decode("ascii").partition("?")[0].rpartition("/")[0]


async def _done(
    act: Awaitable[str], show: Callable[[Exception], HTMLResponse | Awaitable[HTMLResponse]]
) -> Response:
    """Act and go to the page of the result; or show the form again, and why it was not done."""
    try:
        name = await act
    except (RocketLensError, OSError) as error:
        shown = show(error)
        return shown if isinstance(shown, Response) else await shown
    return RedirectResponse(f"/jobs/{name}", SEE_OTHER)


class ActPages:
    """Renders pages that act on one message."""

    def __init__(self, pages: Pages, actions: Actions) -> None:
        self.pages: Final = pages
        self.actions: Final = actions

    async def resend(
        self,
        request: Request,
        preferences: Preferences,
        address: MessageAddress,
        fields: Mapping[str, str],
        error: Exception | None = None,
    ) -> HTMLResponse:
        """Return the page that sends one message again; with an error that is why it did not."""
        to = "group" if fields.get("to") == "group" else "topic"
        group, cluster = "", fields.get("cluster", "")
        if to == "group":
            given = fields.get("group")
            group = await self._group_of(address, cluster) if given is None else given.strip()
        plan = None
        groups: list[str] = []
        try:
            if to == "group" and not group:
                groups = await self._groups(address, cluster)
            else:
                options = ResendOptions(group, cluster)
                plan = await self.actions.preview(
                    *await self.actions.plans.of_message(address, options)
                )
        except (RocketLensError, OSError) as wrong:
            error = error or wrong
        return self.pages.page_with(
            error,
            "act_resend.html",
            request,
            preferences,
            plan=plan,
            to=to,
            group=group,
            groups=groups,
            cluster=cluster,
            reason=fields.get("reason", ""),
            address=address,
            back=_message_path(request),
            origin=self.actions.sources.named(address.source),
        )

    async def _group_of(self, address: MessageAddress, cluster: str) -> str:
        """Return the group whose retry or dead letter a message is; empty if it is none."""
        namespace = namespace_of(self.actions.sources.named(address.source))
        topic = without_namespace(namespace, address.topic)
        groups = await self._groups(address, cluster) if is_group_topic(topic) else []
        return group_of_topic(topic, groups) or ""

    async def _groups(self, address: MessageAddress, cluster: str) -> list[str]:
        origin = self.actions.sources.named(address.source)
        names = [origin.name] if origin.kind == "cluster" else [cluster] if cluster else []
        answer = await self.pages.look_up.groups(names)
        return sorted({each.name for each in answer.groups})

    async def consume(
        self,
        request: Request,
        preferences: Preferences,
        address: MessageAddress,
        fields: Mapping[str, str],
        error: Exception | None = None,
    ) -> HTMLResponse:
        """Return the page that has a client consume a message: clients to choose from, or one."""
        group, client_id = fields.get("group", ""), fields.get("client", "")
        groups = None
        try:
            check_may_act(self.actions.sources.named(address.source), address.topic)
            if not (group and client_id):
                groups = await self.pages.look_up.groups([address.source], group or None)
        except (RocketLensError, OSError) as wrong:
            error = error or wrong
        return self.pages.page_with(
            error,
            "act_consume.html",
            request,
            preferences,
            address=address,
            back=_message_path(request),
            group=group,
            client=client_id,
            groups=groups,
            form_name=new_name(),
            reason=fields.get("reason", ""),
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
            for each in self.actions.sources
            if isinstance(each.opened, ClusterOfConsole) and each.opened.access is not None
        ]
        if not clusters:
            error = error or ActRefused("this console has no cluster that messages can be sent to")
        empty = dict.fromkeys(("topic", "tags", "keys", "properties", "body", "reason"), "")
        return self.pages.page_with(
            error,
            "act_send.html",
            request,
            preferences,
            clusters=clusters,
            fields={**empty, "encoding": "text", "cluster": "", **fields},
            form_name=new_name(),
            back=back,
        )

    async def result(
        self, request: Request, preferences: Preferences, name: str, state: str, page: int
    ) -> HTMLResponse:
        """Return the page of a job, or of an act."""
        result = await self.actions.result(name, state=state, page=page)
        if isinstance(result, ActValue):
            return self.pages.page("act.html", request, preferences, act=result)
        return self.pages.page(
            "job.html", request, preferences, job=result, state=state, number=page, rows=JOB_ROWS
        )


class BatchPages:
    """Renders the pages of jobs with several messages: what a search found, messages that were
    chosen in its list, and dead letters of a group.
    """

    def __init__(self, act: ActPages) -> None:
        self._act: Final = act
        self._actions: Final = act.actions

    async def show(
        self,
        request: Request,
        preferences: Preferences,
        batch: Batch,
        error: Exception | None = None,
        **values: object,
    ) -> HTMLResponse:
        """Return the page that shows a plan, with a form to do it; or why there is none."""
        make, shown = batch
        preview, rows = None, {}
        fields = request.query_params if request.method == "GET" else await form_of(request)
        page = _number_of(fields.get("page", "0"))
        try:
            plan = await make()
            preview = await self._actions.preview(plan, page=page)
            rows = await self._actions.rows(plan, page)
        except (RocketLensError, OSError) as wrong:
            error = error or wrong
        return self._act.pages.page_with(
            error,
            "act_batch.html",
            request,
            preferences,
            plan=preview,
            rows=rows,
            number=page,
            page_rows=JOB_ROWS,
            **{**shown, **values},
        )

    async def start(self, request: Request, preferences: Preferences, batch: Batch) -> Response:
        """Make a job of a form and go to its page; or show the plan again, and why not."""
        form = await form_of(request)

        async def act() -> str:
            return await self._actions.resend(await batch[0](), _order_of(form))

        def again(error: Exception) -> Awaitable[HTMLResponse]:
            return self.show(request, preferences, batch, error, reason=form.get("reason", ""))

        return await _done(act(), again)

    def of_search(self, question: Question, options: ResendOptions, request: Request) -> Batch:
        """Return the plan of what a search finds."""
        return lambda: self._actions.plans.of_search(question, options), {
            "kind": "search",
            "back": question.address("/search"),
            "options": options,
            "hidden": [
                (name, value)
                for name, value in request.query_params.multi_items()
                if name not in ResendOptions._fields
            ],
            "again_fields": [(name, str(each)) for name, each in options._asdict().items()],
            "is_store": self._is_store(question.sources),
            "reason": "",
        }

    def of_dead_letters(
        self, group: str, options: ResendOptions, *, original: bool, again: bool
    ) -> Batch:
        """Return the plan of the dead letters of a group."""
        of_group = [("group", group), ("source", options.cluster)]
        make = self._redrive(group, options, original=original, again=again)
        return make, {
            **_redrive_page(options, original=original, again=again),
            "back": f"/groups?{urlencode(of_group)}",
            "hidden": of_group,
        }

    async def of_chosen(self, request: Request) -> Batch:
        """Return the plan of a form with chosen messages."""
        fields, paths = await _chosen_in(request)
        options = ResendOptions(fields.get("group", "").strip(), fields.get("cluster", ""))

        async def make() -> ResendPlan:
            if len(options.group) > limits.MAX_TOPIC_CHARACTERS:
                raise BadInput(f"a group has at most {limits.MAX_TOPIC_CHARACTERS} characters")
            addresses = [MessageAddress.of_path(each) for each in paths]
            return await self._actions.plans.of_chosen(addresses, options)

        back = local_path(fields.get("back", "/"))
        origins = tuple({path.split("/")[2] for path in paths if path.count("/") > 1})
        return make, {
            "kind": CHOSEN,
            "back": back,
            "options": options,
            "preview": "/resend/chosen",
            "start": "/resend/chosen/start",
            "hidden": [("back", back), *((CHOSEN, each) for each in paths)],
            "again_fields": [("group", options.group), ("cluster", options.cluster)],
            "is_store": self._is_store(origins),
            "reason": "",
        }

    async def of_chosen_letters(self, request: Request) -> Batch:
        """Return the plan of a form with chosen dead letters."""
        fields, letters = await _chosen_in(request)
        group, source = fields.get("group", ""), fields.get("source", "")
        options = ResendOptions(group, source, _most_of(fields.get("most", "")))
        original, again = (fields.get(name) == "true" for name in ("original", "again"))
        make = self._redrive(group, options, original=original, again=again, only=letters)
        of_group = [("group", group), ("source", source)]
        kept = [*of_group, ("most", str(options.most)), *([("again", "true")] if again else [])]
        return make, {
            **_redrive_page(options, original=original, again=again),
            "back": f"/redrive?{urlencode(kept)}",
            "back_text": "redrive_chosen",
            "preview": "/redrive/chosen",
            "start": "/redrive/chosen/start",
            "hidden": [*kept, *((CHOSEN, each) for each in letters)],
            "is_choice": True,
        }

    def _redrive(
        self,
        group: str,
        options: ResendOptions,
        *,
        original: bool,
        again: bool,
        only: list[str] | None = None,
    ) -> MakePlan:
        async def make() -> ResendPlan:
            if only == []:
                raise BadInput("no dead letter is chosen: choose some in the list of a group")
            if only and len(only) > limits.MAX_CHOSEN_MESSAGES:
                raise BadInput(
                    f"{len(only)} messages are chosen: at most {limits.MAX_CHOSEN_MESSAGES}"
                )
            return await self._actions.plans.of_dead_letters(
                group, options, original=original, again=again, only=only or ()
            )

        return make

    def _is_store(self, names: tuple[str, ...]) -> bool:
        return any(each.kind != "cluster" and each.name in names for each in self._actions.sources)


async def _chosen_in(request: Request) -> tuple[dict[str, str], list[str]]:
    """Return the fields of a form, and what was chosen in it; nothing if none was sent."""
    pairs = await form_pairs_of(request) if request.method == "POST" else []
    return dict(pairs), [value for name, value in pairs if name == CHOSEN]


def _redrive_page(options: ResendOptions, *, original: bool, again: bool) -> dict[str, object]:
    """Return what pages of dead letters show alike."""
    marks = (("original", original), ("again", again))
    return {
        "kind": "redrive",
        "options": options,
        "again_fields": [
            ("most", str(options.most)),
            *((name, "true") for name, is_set in marks if is_set),
        ],
        "original": original,
        "again": again,
        "is_choice": False,
        "is_store": False,
        "reason": "",
    }


def _most_of(text: str) -> int:
    """Return how many messages a form asks for at most; the default for an empty text."""
    if not text:
        return limits.DEFAULT_RESEND_MESSAGES
    return min(max(_number_of(text), 1), limits.MAX_RESEND_MESSAGES)


def act_routes(act: ActPages) -> APIRouter:
    """Return the routes of all pages that act."""
    routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
    _add_message_routes(routes, act)
    _add_new_message_routes(routes, act)
    _add_batch_routes(routes, BatchPages(act))

    @routes.get("/jobs")
    async def jobs(request: Request, preferences: Preferred) -> Response:
        answer = await act.actions.all_jobs()
        return act.pages.page("jobs.html", request, preferences, answer=answer)

    @routes.get("/jobs/{name}")
    async def job(
        request: Request,
        preferences: Preferred,
        name: _JobName,
        state: Literal["", "sent", "failed", "unknown", "left"] = "",
        page: Annotated[int, Query(ge=0, le=limits.MAX_RESEND_MESSAGES)] = 0,
    ) -> Response:
        return await act.result(request, preferences, name, state, page)

    @routes.post("/jobs/{name}/{verb}")
    async def change(
        request: Request,
        name: _JobName,
        verb: Literal["pause", "resume", "stop"],
    ) -> Response:
        await act.actions.change(name, verb, rate=_rate_of(await form_of(request)))
        return RedirectResponse(f"/jobs/{name}", SEE_OTHER)

    return routes


def _add_message_routes(routes: APIRouter, act: ActPages) -> None:
    """Add the routes of pages that act on a stored message."""
    actions = act.actions

    async def resend(address: MessageAddress, form: Mapping[str, str]) -> str:
        options = ResendOptions(form.get("group", ""), form.get("cluster", ""))
        plan, _ = await actions.plans.of_message(address, options)
        return await actions.resend(plan, _order_of(form))

    async def consume(address: MessageAddress, form: Mapping[str, str]) -> str:
        group, client_id = form.get("group", ""), form.get("client", "")
        return await actions.consume(address, group, client_id, _order_of(form))

    _add_form(routes, "/m" + MESSAGE + "/resend", act.resend, resend)
    _add_form(routes, "/m" + MESSAGE + "/consume", act.consume, consume)

    @routes.get("/m" + MESSAGE + "/edit")
    async def edit(request: Request, preferences: Preferred, address: Addressed) -> Response:
        source = actions.sources.named(address.source)
        if not may_send(actions.sources, source, address.topic):
            check_may_act(source, address.topic)
        fields = form_fields(await actions.look_up.unmasked(address))
        if source.kind == "cluster":
            fields["cluster"] = source.name
        return act.send(request, preferences, fields, back=_message_path(request))


def _add_form(
    routes: APIRouter,
    path: str,
    show: Callable[..., Awaitable[HTMLResponse]],
    act: Callable[[MessageAddress, Mapping[str, str]], Awaitable[str]],
) -> None:
    """Add the page that shows a form for a message, and what is done with the form."""

    @routes.get(path)
    async def shown(request: Request, preferences: Preferred, address: Addressed) -> Response:
        return await show(request, preferences, address, request.query_params)

    @routes.post(path)
    async def done(request: Request, preferences: Preferred, address: Addressed) -> Response:
        form = await form_of(request)
        return await _done(
            act(address, form), lambda error: show(request, preferences, address, form, error)
        )


def _add_new_message_routes(routes: APIRouter, act: ActPages) -> None:
    """Add the routes of pages that send a new message."""

    @routes.get("/send")
    async def send(request: Request, preferences: Preferred) -> Response:
        return act.send(request, preferences, request.query_params)

    @routes.post("/send")
    async def send_now(request: Request, preferences: Preferred) -> Response:
        form = await form_of(request)

        async def do() -> str:
            new = NewMessage.of_form(form)
            return await act.actions.send(form.get("cluster", ""), new, _order_of(form))

        return await _done(do(), lambda error: act.send(request, preferences, form, error))


def _add_batch_routes(routes: APIRouter, pages: BatchPages) -> None:
    """Add the routes of pages that act on several messages."""
    for path, batch_of in (("/resend", pages.of_chosen), ("/redrive", pages.of_chosen_letters)):
        _add_chosen_routes(routes, path + "/chosen", pages, batch_of)

    @routes.api_route("/resend", methods=["GET", "POST"])
    async def resend(
        *,
        request: Request,
        preferences: Preferred,
        question: Asked,
        group: _Group = "",
        cluster: _Group = "",
        most: _Most = limits.DEFAULT_RESEND_MESSAGES,
    ) -> Response:
        options = ResendOptions(group.strip(), cluster, most)
        do = pages.start if request.method == "POST" else pages.show
        return await do(request, preferences, pages.of_search(question, options, request))

    @routes.api_route("/redrive", methods=["GET", "POST"])
    async def redrive(
        *,
        request: Request,
        preferences: Preferred,
        group: _Group,
        source: _Group,
        most: _Most = limits.DEFAULT_RESEND_MESSAGES,
        original: bool = False,
        again: bool = False,
    ) -> Response:
        options = ResendOptions(group, source, most)
        batch = pages.of_dead_letters(group, options, original=original, again=again)
        do = pages.start if request.method == "POST" else pages.show
        return await do(request, preferences, batch)


def _add_chosen_routes(
    routes: APIRouter,
    path: str,
    pages: BatchPages,
    batch_of: Callable[[Request], Awaitable[Batch]],
) -> None:
    # The first page is the answer to a form, too: an address of so many messages would be too long
    # for proxies.
    @routes.api_route(path, methods=["GET", "POST"])
    async def chosen(request: Request, preferences: Preferred) -> Response:
        return await pages.show(request, preferences, await batch_of(request))

    @routes.post(path + "/start")
    async def start(request: Request, preferences: Preferred) -> Response:
        return await pages.start(request, preferences, await batch_of(request))
