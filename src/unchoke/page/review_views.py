"""The review: one finding after the other, and what was pressed."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from unchoke.core.errors import UsageError
from unchoke.core.input_file import parse_json
from unchoke.data.corrections import GROUP, LABEL, VALUE
from unchoke.page.catalogue import PhotoCatalogue
from unchoke.page.page_sources import ReviewItem
from unchoke.page.page_state import PageState, read_body, show, state_of
from unchoke.page.photo_views import like_rows
from unchoke.page.reviewing import label_choices

_MOST_BYTES = 64 * 1024
_MOST_PHOTOS = 24
_NUM_NEAREST = 4


def review_page(request: Request) -> Response:
    """The finding that the address names, or the first that waits."""
    state = state_of(request)
    return show(request, "review.html.j2", title="Review", part=_part(state, request.query_params.get("at", "")))


async def decide(request: Request) -> Response:
    """A decision: written to the disk, then the next finding is shown."""
    return await _written(request, _decide)


async def undo(request: Request) -> Response:
    """The last decision is taken back, and its finding is shown again."""
    return await _written(request, _undo)


async def _written(request: Request, act: Any) -> Response:
    body = await read_body(request, most_bytes=_MOST_BYTES)
    try:
        told = parse_json(body or b"{}")
    except ValueError:
        told = None
    if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
        raise UsageError(
            "that was no decision", code="bad-decision", why="a JSON object of texts is expected", try_="press one of the keys"
        )
    return await run_in_threadpool(act, state_of(request), told)


def _decide(state: PageState, told: dict[str, str]) -> Response:
    catalogue = state.catalogue()
    place = None if catalogue is None else catalogue.place(told.get("photo", ""))
    if catalogue is None or place is None:
        raise UsageError(
            "there is no such photo", code="no-such-photo", why="it may have gone from the manifest", try_="load the page again"
        )
    finding, value, act = told.get("finding", ""), told.get("value", "").strip(), told.get("act", "")
    if act.startswith(VALUE) and act.removeprefix(VALUE) not in catalogue.values:
        raise UsageError(
            f"photos have no value {act.removeprefix(VALUE)!r}",
            code="unknown-value",
            why=f"there are {', '.join(catalogue.values) or 'classes alone'}",
            try_="load the page again",
        )
    following = state.review.decide(act, catalogue.names[place], value, finding=finding)
    if finding:
        return HTMLResponse(_part(state, following))
    return HTMLResponse(state.render("decided.html.j2", {"decided": catalogue.row(place, state.review.corrections())["decided"]}))


def _undo(state: PageState, told: dict[str, str]) -> Response:
    sample_id = state.review.undo()
    if told.get("finding") or not told.get("photo"):
        return HTMLResponse(_part(state, state.review.finding_of(sample_id)))
    catalogue = state.catalogue()
    place = None if catalogue is None else catalogue.place(told["photo"])
    decided = "" if catalogue is None or place is None else catalogue.row(place, state.review.corrections())["decided"]
    return HTMLResponse(state.render("decided.html.j2", {"decided": decided}))


def _part(state: PageState, wanted: str) -> str:
    """The finding as markup: its photos, what is suggested, and the keys."""
    place, catalogue = state.review.at(wanted), state.catalogue()
    if place.item is None or catalogue is None:
        seen = [item for item in state.review.items() if not item.waits]
        empty = {"num_all": place.num_all, "num_decided": len(state.review.corrections().decided), "seen": seen[:_MOST_PHOTOS]}
        return state.render("review_empty.html.j2", empty)
    item, corrections = place.item, state.review.corrections()
    known = [(photo, where) for photo in item.photos if (where := catalogue.place_of(photo)) is not None]
    rows = [catalogue.row(where, corrections) for _, where in known[:_MOST_PHOTOS]]
    likely = [one.value for one in item.suggested if one.what == LABEL] + [rows[0]["said"], rows[0]["label"]] if rows else []
    waiting = next((row["id"] for row in rows if not row["decided"]), rows[0]["id"] if rows else "")
    values = {
        "item": item,
        "place": place,
        "rows": rows,
        "num_more": len(known) - len(rows),
        "num_gone": len(item.photos) - len(known),
        "current": waiting,
        "labels": label_choices(catalogue.classes, likely),
        "classes": catalogue.classes,
        "targets": sorted(catalogue.values, key=lambda name: name != item.target),
        "suggestion": _suggestion(item),
        "following": _picture_ids(state, place.after),
        "nearest": _nearest(state, catalogue, item),
    }
    return state.render("review_part.html.j2", values)


def _nearest(state: PageState, catalogue: PhotoCatalogue, item: ReviewItem) -> list[tuple[str, list[dict[str, Any]]]]:
    """Beside a label in doubt: the most similar photos of the class it has and of the class that is suggested."""
    wanted = next((one.value for one in item.suggested if one.what == LABEL), "")
    where = catalogue.place_of(item.photos[0]) if item.photos and wanted else None
    if where is None:
        return []
    found = []
    for label in (catalogue.labels[where], wanted):
        among = {name for name, own in zip(catalogue.names, catalogue.labels, strict=True) if own == label}
        like = state.sources.similar(item.photos[0], among=among, num=_NUM_NEAREST)
        found.append((label, like_rows(state, catalogue, like.photos)))
    return [(label, rows) for label, rows in found if rows]


def _suggestion(item: ReviewItem) -> str:
    """What taking over the suggestion does, in words; "" where nothing is suggested."""
    words = {(one.what, one.value) for one in item.suggested}
    if not words:
        return ""
    if len(item.suggested) == 1 or len(words) == 1:
        what, value = words.pop()
        told = {LABEL: f"label {value}", GROUP: "one group"}.get(what, value)
        return told if len(item.suggested) == 1 else f"{told} ({len(item.suggested):,} photos)"
    return "one group" if all(one.what == GROUP for one in item.suggested) else f"{len(item.suggested):,} decisions"


def _picture_ids(state: PageState, finding: str) -> list[str]:
    """Photos of the finding that comes next, for the browser to fetch ahead."""
    catalogue = state.catalogue()
    item = next((one for one in state.review.items() if one.id == finding), None) if finding else None
    places = [] if item is None or catalogue is None else [catalogue.place_of(photo) for photo in item.photos[:4]]
    return [catalogue.ids[place] for place in places if catalogue is not None and place is not None]
