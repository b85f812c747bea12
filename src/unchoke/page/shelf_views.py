"""What runs left to look at: masks over scenes, what held training back, and views of profiles. All of it by id."""

from __future__ import annotations

import base64
import hashlib
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from unchoke.core import listing
from unchoke.core.checksums import making_sense
from unchoke.core.findings import Finding, rank
from unchoke.core.input_file import parse_json, read_plain
from unchoke.core.record import RunRecord
from unchoke.page.page_sources import IMAGE, PREDICTION, SceneMask
from unchoke.page.page_state import PageState, show, state_of
from unchoke.page.stored_pages import serve_page
from unchoke.page.thumbnails import encode
from unchoke.runs.report.html import legend
from unchoke.runs.report.json import load_record
from unchoke.runs.report.page import safe_thumbnail
from unchoke.runs.report.view import describe_finding, moment
from unchoke.runs.trace.trace_html import render_trace_html
from unchoke.runs.trace.trace_record import read_trace

LAYERS = (PREDICTION, "truth", "error")
MASK_PX = 1600
_TRACES = (".pt.trace.json", ".pt.trace.json.gz")
_MOST_RUNS = 20
_MOST_LINTED = 500
_MOST_MASKS = 200


def _records(state: PageState) -> list[RunRecord]:
    """Records of the newest finished runs."""
    files = [state.workspace.run_folder(run.name) / "record.json" for run in state.runs() if run.status == "done"][:_MOST_RUNS]
    return [load_record(file) for file in files if file.is_file()]


def scenes_page(request: Request) -> Response:
    """Whole scenes and pieces of some, with their masks over them, of runs that draw masks."""
    state = state_of(request)
    shown = []
    for record in _records(state):
        if record.gallery:
            pieces = [_piece(record, place) for place in range(len(record.gallery))]
            shown.append(
                {"run": record.run, "pieces": pieces, "legend": [(row["name"], row["colour"]) for row in legend(record)]}
            )
    whole = state.sources.masks()
    return show(
        request, "scenes.html.j2", title="Scenes", shown=shown, whole=whole[:_MOST_MASKS], num_whole=len(whole), layers=LAYERS
    )


def _piece(record: RunRecord, place: int) -> dict[str, Any]:
    piece = record.gallery[place]
    layers = [word for word in LAYERS if safe_thumbnail(getattr(piece, word))]
    return {"place": place, "title": piece.title, "note": piece.note, "layers": layers}


def scene_picture(request: Request) -> Response:
    """One picture of a piece: the scene, or a layer over it."""
    state = state_of(request)
    run, place, word = (request.path_params[name] for name in ("run", "place", "layer"))
    file = state.workspace.run_folder(state.run(run).name) / "record.json"
    record = load_record(file) if file.is_file() else RunRecord()
    data = None
    if place < len(record.gallery) and word in (IMAGE, *LAYERS):
        data = safe_thumbnail(getattr(record.gallery[place], word))
    if data is None:
        return PlainTextResponse("404: there is no such picture\n", 404)
    kind, _, coded = data.removeprefix("data:").partition(";base64,")
    return Response(base64.b64decode(coded), media_type=kind, headers={"Cache-Control": "private, max-age=60"})


def mask_picture(request: Request) -> Response:
    """A whole scene, or the mask over it, by id and as small as it is shown; kept as thumbnails are."""
    state, layer = state_of(request), request.path_params["layer"]
    found = next((one for one in state.sources.masks() if one.id == request.path_params["mask"]), None)
    if found is None or layer not in found.layers:
        return PlainTextResponse("404: there is no such picture\n", 404)
    draw = partial(_paint, state, found, layer)
    data = state.thumbnails.kept(found.layers[layer], [layer, found.legend, found.width, found.height, MASK_PX], draw)
    kind = "image/jpeg" if layer == IMAGE else "image/png"
    return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=60"})


def _paint(state: PageState, mask: SceneMask, layer: str) -> bytes:
    return encode(state.sources.paint(mask, layer), side_px=MASK_PX)


@dataclass(frozen=True)
class StoredProfile:
    """A page or a trace below `logs/profiler`, or what was found in a script."""

    id: str
    name: str
    file: Path
    kind: str


def _profiles(state: PageState) -> list[StoredProfile]:
    folder = state.workspace.profiler_logs
    if not folder.is_dir():
        return []
    found = []
    for entry in listing.walk(folder):
        endings = {".html": "page", "findings.json": "script", **dict.fromkeys(_TRACES, "trace")}
        kind = next((kind for ending, kind in endings.items() if entry.relative.endswith(ending)), "")
        if kind:
            one = hashlib.sha256(entry.relative.encode("utf-8", "surrogateescape")).hexdigest()[:16]
            found.append(StoredProfile(one, entry.relative, Path(entry.path), kind))
    return found


def speed_page(request: Request) -> Response:
    """What held runs back, profiles, and scripts that were profiled."""
    state = state_of(request)
    profiles = _profiles(state)
    pages = {one.name.removesuffix(".html") for one in profiles if one.kind == "page"}
    views = [one for one in profiles if one.kind == "page" or (one.kind == "trace" and one.name.split(".pt.")[0] not in pages)]
    runs = [(record.run, [describe_finding(choke) for choke in record.chokes]) for record in _records(state) if record.chokes]
    scripts = [(one.name.removesuffix("/findings.json"), _found_in(one.file)) for one in profiles if one.kind == "script"]
    linted = _linted(state.workspace.lint_file)
    return show(request, "speed.html.j2", title="Speed", runs=runs, views=views, scripts=scripts[::-1], linted=linted)


def _linted(file: Path) -> dict[str, Any] | None:
    """What `unchoke lint … --out` found last; None where nothing was kept."""
    if not file.is_file():
        return None
    with making_sense(file, try_="type the lint command again"):
        kept = parse_json(read_plain(file))
        found = [describe_finding(Finding(**row)) for row in kept["findings"]]
        unread = [f"{one['path']}: {one['message']}" for one in kept["problems"]]
        told = {"command": shlex.join(["unchoke", "lint", *kept["words"]]), "when": moment(kept["when"])}
        return {**told, "items": found[:_MOST_LINTED], "num": len(found), "files": kept["files"], "unread": unread}


def _found_in(file: Path) -> list[dict[str, Any]]:
    """What `unchoke profile -- …` found in a script, the worst first."""
    with making_sense(file, try_="profile the script again"):
        return [describe_finding(one) for one in rank([Finding(**row) for row in parse_json(read_plain(file))])]


def profile_page(request: Request) -> Response:
    """The views of a profile: the page that was written, or one made now of its trace."""
    state = state_of(request)
    found = next((one for one in _profiles(state) if one.id == request.path_params["profile"]), None)
    if found is None or found.kind == "script":
        return PlainTextResponse("404: there is no such profile\n", 404)
    if found.kind == "page":
        return serve_page(read_plain(found.file).decode("utf-8", "replace"), of=found.name)
    return serve_page(render_trace_html(read_trace(found.file), None), of=found.name)
