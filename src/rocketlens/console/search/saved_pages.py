"""The page and the API of saved searches."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import Field

from rocketlens.console.act.act_values import ConsoleRequest
from rocketlens.console.api import ERRORS
from rocketlens.console.forms import form_of
from rocketlens.console.pages import SEE_OTHER, Pages
from rocketlens.console.preferences import Preferences
from rocketlens.console.search.parameters import Asked, Preferred
from rocketlens.console.search.question import Question
from rocketlens.console.search.saved_searches import SavedSearch, SavedSearches
from rocketlens.console.values import ConsoleValue, ErrorAnswer
from rocketlens.errors import RocketLensError

_PATH: Final = "/saved"
Name = Annotated[str, Path(max_length=40)]
Everything = Annotated[
    bool,
    Query(
        alias="all",
        description="also those that other users did not share, for administrators of the console",
    ),
]
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: ERRORS[400],
    403: {"model": ErrorAnswer, "description": "it is another user's"},
    404: {"model": ErrorAnswer, "description": "there is no such search"},
    415: {"model": ErrorAnswer, "description": "the request is not JSON"},
    429: {"model": ErrorAnswer, "description": "another program changes them: try again"},
    502: {"model": ErrorAnswer, "description": "the file of saved searches cannot be read"},
}


class SaveRequest(ConsoleRequest):
    """A name for the search of the address."""

    title: str = Field(description="its name; no two searches of one user have the same")
    is_shared: bool = Field(
        default=False, description="for all users who may see the topics and sources it names"
    )


class SavedSearchValue(ConsoleValue):
    """A saved search: what is asked, never what was found."""

    name: str = Field(description="its name in addresses")
    title: str
    user: str = Field(description="who saved it; empty in a console without users")
    is_own: bool
    is_shared: bool
    may_delete: bool
    time_ms: int = Field(description="when it was saved")
    query: str = Field(
        description="the question as an address has it, after /search? or /api/search?"
    )


class SavedSearchesValue(ConsoleValue):
    """One's own searches and those that are shared, the newest first."""

    searches: list[SavedSearchValue]


def saved_api_routes(saved: SavedSearches) -> APIRouter:
    """Return the routes of the API."""
    routes = APIRouter(prefix="/api", responses=_ERRORS)

    def value_of(search: SavedSearch) -> SavedSearchValue:
        return SavedSearchValue.of(
            search, is_own=saved.is_own(search), may_delete=saved.may_delete(search)
        )

    @routes.get("/saved-searches")
    async def listed(*, everything: Everything = False) -> SavedSearchesValue:
        """Return one's own saved searches, and those of others that are shared."""
        searches = await saved.seen(everything=everything)
        return SavedSearchesValue(searches=[value_of(each) for each in searches])

    @routes.post("/saved-searches")
    async def save(question: Asked, body: SaveRequest) -> SavedSearchValue:
        """Save the search of the address, as /api/search takes it; `cursor` is not kept."""
        return value_of(await saved.save(question, body.title, is_shared=body.is_shared))

    @routes.delete("/saved-searches/{name}")
    async def delete(name: Name) -> SavedSearchValue:
        """Delete a saved search, and return what it was."""
        return value_of(await saved.delete(name))

    return routes


class SavedPages:
    """Renders the page."""

    def __init__(self, pages: Pages, saved: SavedSearches) -> None:
        self._pages: Final = pages
        self.saved: Final = saved

    async def show(
        self,
        request: Request,
        preferences: Preferences,
        question: Question,
        *,
        everything: bool = False,
        error: Exception | None = None,
        title: str = "",
    ) -> HTMLResponse:
        """Return the list, with a form for the question if there is one, and why something was not
        done.
        """
        searches: list[SavedSearch] | None = None
        try:
            searches = await self.saved.seen(everything=everything)
        except (RocketLensError, OSError) as wrong:
            error = error or wrong
        return self._pages.page_with(
            error,
            "saved.html",
            request,
            preferences,
            question=question,
            found=searches,
            may_delete=self.saved.may_delete,
            everything=everything,
            title=title,
        )


def saved_page_routes(saved_pages: SavedPages) -> APIRouter:
    """Return the routes of the page."""
    routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
    saved = saved_pages.saved

    @routes.get(_PATH)
    async def listed(
        *,
        request: Request,
        preferences: Preferred,
        question: Asked,
        everything: Everything = False,
    ) -> Response:
        return await saved_pages.show(request, preferences, question, everything=everything)

    @routes.post(_PATH)
    async def save(request: Request, preferences: Preferred, question: Asked) -> Response:
        form = await form_of(request)
        title = form.get("title", "")
        try:
            await saved.save(question, title, is_shared=form.get("shared") == "true")
        except (RocketLensError, OSError) as error:
            return await saved_pages.show(request, preferences, question, error=error, title=title)
        return RedirectResponse(_PATH, SEE_OTHER)

    @routes.post(_PATH + "/{name}/delete")
    async def delete(request: Request, preferences: Preferred, name: Name) -> Response:
        try:
            await saved.delete(name)
        except (RocketLensError, OSError) as error:
            return await saved_pages.show(request, preferences, Question(), error=error)
        return RedirectResponse(_PATH, SEE_OTHER)

    return routes
