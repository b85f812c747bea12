"""The page as an application: every address there is, behind the guard. Which function answers what is in the table here."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from unchoke.core.errors import DataError, UnchokeError
from unchoke.page import photo_views, review_views, run_views, shelf_views
from unchoke.page.page_state import PageState, show, state_of
from unchoke.runs.report.page import template_file

_STATIC = Path(__file__).parent / "static"
STATIC = {
    "report.css": (template_file("report.css"), "text/css"),
    "page.css": (_STATIC / "page.css", "text/css"),
    "page.js": (_STATIC / "page.js", "text/javascript"),
    "icon.svg": (_STATIC / "icon.svg", "image/svg+xml"),
}
"""Our own files by name: nothing else is served by one."""


def static_file(request: Request) -> Response:
    found = STATIC.get(request.path_params["name"])
    if found is None:
        return _nowhere(request, None)
    return FileResponse(found[0], media_type=found[1], headers={"Cache-Control": "private, no-cache"})


ROUTES = [
    Route("/", run_views.runs_page),
    Route("/live", run_views.live_events),
    Route("/runs/{run}", run_views.run_page),
    Route("/runs/{run}/report", run_views.report_page),
    Route("/compare", run_views.compare_page),
    Route("/photos", photo_views.photos_page),
    Route("/photos/rows", photo_views.photo_rows),
    Route("/photos/{photo}", photo_views.photo_page),
    Route("/small/{photo}", photo_views.small_picture),
    Route("/large/{photo}", photo_views.large_picture),
    Route("/try", photo_views.try_page),
    Route("/ask", photo_views.ask_model, methods=["POST"]),
    Route("/review", review_views.review_page),
    Route("/decide", review_views.decide, methods=["POST"]),
    Route("/undo", review_views.undo, methods=["POST"]),
    Route("/scenes", shelf_views.scenes_page),
    Route("/scenes/{run}/{place:int}/{layer}", shelf_views.scene_picture),
    Route("/masks/{mask}/{layer}", shelf_views.mask_picture),
    Route("/speed", shelf_views.speed_page),
    Route("/speed/{profile}", shelf_views.profile_page),
    Route("/static/{name}", static_file),
]


def build_app(state: PageState) -> Starlette:
    """The application, without its guard."""
    app = Starlette(routes=ROUTES, exception_handlers={UnchokeError: _told, OSError: _not_opened, 404: _nowhere})
    app.state.page = state
    return app


def _told(request: Request, error: Exception) -> Response:
    """An error of ours as a page, or as a part of one where a script asked."""
    assert isinstance(error, UnchokeError)
    values = {"what": f"{error.what} [{error.code}]", "why": error.why, "try_": error.try_}
    if request.method == "POST":
        return HTMLResponse(state_of(request).render("problem_part.html.j2", values), 400)
    return show(request, "problem.html.j2", status=400, title="A problem", **values)


def _not_opened(request: Request, error: Exception) -> Response:
    """A file that the system does not let us have, as an error of ours."""
    assert isinstance(error, OSError)
    named = error.filename or "a file of the workspace"
    why = error.strerror or str(error)
    return _told(
        request,
        DataError(
            f"{named} cannot be opened", code="cannot-open-page", why=why, try_="see to that file, then load the page again"
        ),
    )


def _nowhere(request: Request, _error: Exception | None) -> Response:
    words = {"what": "there is no such page", "why": "the address leads nowhere", "try_": "the links above"}
    return show(request, "problem.html.j2", status=404, title="Nothing here", **words)
