"""What the report shows of masks: pieces of stitched masks beside the truth, and the colours of the classes.

In comes a record in JSON types, any part of which may be missing or odd; out come plain values for the template, or None where
there is nothing to show. The pictures themselves are made by `masks/gallery.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from unchoke.reports import summary
from unchoke.reports.thumbnails import safe_thumbnail

Model = dict[str, Any]
PICTURES = ("image", "overlay", "prediction", "truth", "error")
_MOST_SAMPLES = 48
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


def gallery(record: Mapping[str, Any]) -> Model | None:
    """Each sample as five pictures side by side, with its title and what was scored on it; the legend beside them."""
    found = summary.rows(record, "gallery")
    if not found:
        return None
    colours = legend(record)
    return {
        "items": [_sample(item) for item in found[:_MOST_SAMPLES]],
        "num_more": max(0, len(found) - _MOST_SAMPLES),
        "legend": colours,
        "first_class": colours[0]["name"] if colours else "",
    }


def legend(record: Mapping[str, Any]) -> list[dict[str, str]]:
    """The colour of each class; entries whose colour is not written like ``#0072b2`` are left out."""
    rows = [(str(row.get("name", "")), str(row.get("colour", ""))) for row in summary.rows(record, "legend")]
    return [{"name": name, "colour": colour} for name, colour in rows if _COLOUR.fullmatch(colour)]


def _sample(item: Mapping[str, Any]) -> Model:
    return {
        "title": str(item.get("title") or ""),
        "note": str(item.get("note") or ""),
        "pictures": [(word, safe_thumbnail(item.get(word))) for word in PICTURES],
    }
