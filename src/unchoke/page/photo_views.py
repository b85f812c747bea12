"""Pages about photos: the grid with its filters, one photo with those like it, pictures by id, a photo that is dropped here."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from unchoke.page.catalogue import ANY_FINDING, ORDERS, PhotoCatalogue, PhotoFilter
from unchoke.page.page_sources import LikePhoto
from unchoke.page.page_state import PageState, read_body, show, state_of
from unchoke.page.reviewing import label_choices
from unchoke.pixels.image import DecodeError

FIRST_ROWS = 120
_MOST_ROWS = 500
_MOST_PHOTO_BYTES = 64 * 2**20
_PICTURE_HEADERS = {"Cache-Control": "private, max-age=3600"}


def photos_page(request: Request) -> Response:
    """The grid: what is in sight first comes with the page, the rest as it is scrolled to."""
    state = state_of(request)
    catalogue = state.catalogue()
    if catalogue is None or not len(catalogue):
        return show(request, "photos_empty.html.j2", title="Photos")
    wanted = PhotoFilter.of(request.query_params)
    places = catalogue.select(wanted)
    return show(
        request,
        "photos.html.j2",
        title="Photos",
        wanted=wanted,
        catalogue=catalogue,
        orders=ORDERS,
        choices=_choices(catalogue, wanted),
        num_shown=len(places),
        rows=_rows(state, catalogue, places[:FIRST_ROWS]),
    )


_Choice = tuple[str, str, list[tuple[str, str]], str, str]
"""A filter: its name, its label, values with their words, the value that is chosen, and the words for none."""


def _choices(catalogue: PhotoCatalogue, wanted: PhotoFilter) -> list[_Choice]:
    """The filters that the photos have something for."""
    judged = [("right", "right"), ("wrong", "wrong"), ("unjudged", "not judged")]
    sure = [(share, f"below {share} %") for share in ("50", "80", "95")]
    found = [(kind, f"{kind} ({count:,})") for kind, count in sorted(catalogue.found_kinds.items())]
    choices: list[_Choice] = [
        ("label", "class", [(name, name) for name in catalogue.classes], wanted.label, "all"),
        ("split", "split", [(side, side) for side in catalogue.sides], wanted.split, "all"),
        ("judged", "answer", judged if catalogue.run else [], wanted.judged, "any"),
        ("below", "sure", sure if catalogue.run else [], wanted.below, "any"),
        ("finding", "finding", [(ANY_FINDING, "any finding"), *found] if found else [], wanted.finding, "with or without"),
    ]
    return [choice for choice in choices if choice[2]]


def photo_rows(request: Request) -> Response:
    """A piece of the grid: rows from `start` on."""
    state = state_of(request)
    catalogue = state.catalogue()
    start, count = (_number(request.query_params.get(name, "")) for name in ("start", "count"))
    if catalogue is None:
        return JSONResponse([])
    places = catalogue.select(PhotoFilter.of(request.query_params))
    return JSONResponse(_rows(state, catalogue, places[start : start + min(count, _MOST_ROWS)]))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 12 else 0


def _rows(state: PageState, catalogue: PhotoCatalogue, places: Any) -> list[dict[str, Any]]:
    corrections = state.review.corrections()
    return [catalogue.row(int(place), corrections) for place in places]


def small_picture(request: Request) -> Response:
    """A thumbnail by id."""
    return _picture(request, large=False)


def large_picture(request: Request) -> Response:
    """The photo itself by id, as JPEG."""
    return _picture(request, large=True)


def _picture(request: Request, *, large: bool) -> Response:
    state = state_of(request)
    catalogue = state.recent_catalogue()
    place = None if catalogue is None else catalogue.place(request.path_params["photo"])
    if catalogue is None or place is None:
        return PlainTextResponse("404: there is no such photo\n", 404)
    draw = state.thumbnails.large if large else state.thumbnails.small
    try:
        return Response(draw(catalogue.paths[place]), media_type="image/jpeg", headers=_PICTURE_HEADERS)
    except DecodeError as error:
        return PlainTextResponse(f"{error}\n", 422)


def photo_page(request: Request) -> Response:
    """One photo: what is known of it, what may be decided, and the photos most like it."""
    state = state_of(request)
    catalogue = state.catalogue()
    place = None if catalogue is None else catalogue.place(request.path_params["photo"])
    if catalogue is None or place is None:
        return show(request, "problem.html.j2", status=404, title="Photos", what="there is no such photo", why="", try_="")
    found = state.sources.similar(catalogue.names[place])
    items = [item for item in state.review.items() if catalogue.names[place] in item.photos]
    row = _rows(state, catalogue, [place])[0]
    return show(
        request,
        "photo.html.j2",
        title=catalogue.names[place],
        photo={**row, "path": catalogue.paths[place]},
        run=catalogue.run,
        labels=label_choices(catalogue.classes, [row["said"], row["label"]]),
        classes=catalogue.classes,
        targets=sorted(catalogue.values),
        items=items,
        like=like_rows(state, catalogue, found.photos),
        why_not=found.why_not,
    )


def like_rows(state: PageState, catalogue: PhotoCatalogue, photos: tuple[LikePhoto, ...]) -> list[dict[str, Any]]:
    """Photos that are alike, as far as the catalogue has them."""
    known = [(one, place) for one in photos if (place := catalogue.place_of(one.sample_id)) is not None]
    rows = _rows(state, catalogue, [place for _, place in known])
    return [{**row, "like": f"{100 * one.cosine:.0f} %"} for row, (one, _) in zip(rows, known, strict=True)]


def try_page(request: Request) -> Response:
    """Where a photo is dropped."""
    state = state_of(request)
    return show(request, "try.html.j2", title="Try a photo", has_model=any(run.status == "done" for run in state.runs()))


async def ask_model(request: Request) -> Response:
    """What the model says of the picture that was sent; it is decoded in memory and forgotten."""
    data = await read_body(request, most_bytes=_MOST_PHOTO_BYTES)
    return await run_in_threadpool(_answer, state_of(request), data)


def _answer(state: PageState, data: bytes) -> Response:
    try:
        answer = state.sources.ask(data)
    except DecodeError as error:
        values = {"what": "this file is no picture that can be decoded", "why": error.detail, "try_": "a JPEG or PNG file"}
        return HTMLResponse(state.render("problem_part.html.j2", values), 422)
    catalogue = state.catalogue()
    like = like_rows(state, catalogue, answer.nearest) if catalogue is not None else []
    return HTMLResponse(state.render("answer.html.j2", {"answer": answer, "like": like}))
