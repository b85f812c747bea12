"""The page of `unchoke curate`: findings by kind, each with its photos, its words and what is suggested.

In: the dictionary of the result, and where each photo lies. Out: one self-contained HTML file. A photo that cannot be shown has
its name alone. Nothing is judged here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unchoke.core import atomic
from unchoke.core.units import format_count, format_seconds
from unchoke.runs.report.layout import visible
from unchoke.runs.report.page import Block, Section, make_thumbnail, render_page
from unchoke.runs.report.view import Table

Thumbnails = Mapping[str, str]
MOST_OF_KIND = 24
"""Findings of one kind that are shown."""
MOST_PHOTOS = 4
"""Photos of one finding that are shown."""


def shown_photos(result: Mapping[str, Any]) -> list[str]:
    """The photos that the page will show."""
    shown = (id_ for findings in _by_kind(result).values() for one in findings for id_ in one["photos"][:MOST_PHOTOS])
    return list(dict.fromkeys(shown))


def save_curation_page(result: Mapping[str, Any], file: Path, thumbnails: Thumbnails, kinds: Mapping[str, str]) -> None:
    """Write the page; `thumbnails` are data URIs by photo, `kinds` says what each kind is."""
    atomic.write_text(file, render_curation_page(result, thumbnails, kinds))


def render_curation_page(result: Mapping[str, Any], thumbnails: Thumbnails, kinds: Mapping[str, str]) -> str:
    """The whole page."""
    counts, by_kind, sections = Counter(one["kind"] for one in result["findings"]), _by_kind(result), []
    for kind, some in by_kind.items():
        blocks: list[Block] = [("found", [_shown(one, thumbnails) for one in some])]
        left = counts[kind] - len(some)
        blocks += [("hint", f"{left} more are in findings.json.")] if left else []
        sections.append(Section(kind, f"{kind}: {visible(kinds.get(kind, ''))}", kind, blocks))
    rows = [(kind, f"{counts[kind]:,}", kinds.get(kind, "")) for kind in by_kind]
    wrong = [f"About {result['num_wrong']} labels may be wrong, by confident learning."] if result["num_wrong"] else []
    shown = {
        "figure": f"{len(result['queue']):,}",
        "caption": "to decide, as lines of corrections.csv; photos are never changed",
        "sentences": [*wrong, *map(visible, result.get("notes", ())), *([] if sections else ["Nothing was found."])],
        "table": Table(("kind", "findings", "what it is"), rows, right=(1,)) if rows else None,
    }
    found = format_count(counts.total(), "finding")
    facts = [result["data"], format_count(result["num_photos"], "photo"), found, format_seconds(result["seconds"])]
    return render_page({"title": "What to look at", "facts": facts}, shown, sections, style="curation.css")


def _by_kind(result: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """The first findings of each kind, kinds in the order of their most pressing one."""
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for one in result["findings"]:
        if len(found[one["kind"]]) < MOST_OF_KIND:
            found[one["kind"]].append(one)
    return found


def _shown(finding: Mapping[str, Any], thumbnails: Thumbnails) -> dict[str, Any]:
    decisions = [f"{one['what']} {one['value']}" for one in finding["suggested"][:1]]
    return {
        **{name: finding[name] for name in ("id", "message", "settled")},
        "score": f"{finding['score']:.2f}",
        "suggested": decisions[0] if decisions else "",
        "photos": [{"name": id_, "picture": thumbnails.get(id_, "")} for id_ in finding["photos"][:MOST_PHOTOS]],
        "more": max(0, len(finding["photos"]) - MOST_PHOTOS),
    }


def thumbnail_of(image_hwc: Any) -> str:
    """A photo as the page shows it."""
    return make_thumbnail(image_hwc, side_px=144)
