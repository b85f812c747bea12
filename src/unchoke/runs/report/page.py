"""What every HTML page of ours has in common: one file, its style and script inside, and a policy that allows these two alone.

In: a heading, a result, sections of blocks, each a kind and what `blocks.html.j2` shows of it; and pictures. Out: the page with
everything escaped, and pictures as text (data URIs) that it can hold.
The policy holds even for text that slipped through: a script that the page did not bring cannot run, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unchoke.runs.report.layout import visible

if TYPE_CHECKING:
    import numpy as np
    from jinja2 import Environment
    from numpy.typing import NDArray

_TEMPLATES = Path(__file__).parent / "templates"
_JPEG_QUALITY = 80
_DATA_URI = re.compile(r"data:image/(jpeg|png);base64,[A-Za-z0-9+/]+={0,2}")
Block = tuple[str, Any]
"""What is shown, and how: `p`, `hint`, `h3`, `pre`, `table`, `details`, `facts`, `charts`, `findings`, …"""


class Section(NamedTuple):
    """`missing` is what a record without it lacks, in words, for tasks of one of `kinds`; of any task where none is named."""

    name: str
    title: str
    link: str
    blocks: list[Block]
    missing: str = ""
    kinds: Sequence[str] = ()


def render_page(
    heading: Mapping[str, Any],
    result: Mapping[str, Any] | None,
    sections: Sequence[Section],
    *,
    style: str = "",
    script: str = "",
    missing: Sequence[str] = (),
    notes: Sequence[str] = (),
    data: str = "",
) -> str:
    """A whole page. `heading` has a `title` and `facts`; `result` a `figure`, its `caption`, `sentences`, and a `table`.

    `style` and `script` come on top of those of every page; `data` is what the script reads.
    """
    styles, scripts = ("report.css", *([style] if style else [])), ("report.js", *([script] if script else []))
    result = None if result is None else {"bar": "", "table": None, **result}
    shown = {"heading": heading, "result": result, "sections": sections, "missing": missing, "notes": notes, "data": data}
    return environment().get_template("report.html.j2").render(**page_parts(styles=styles, scripts=scripts), **shown)


@cache
def environment(folder: Path = _TEMPLATES) -> Environment:
    """Renders templates of a folder and those here: everything escaped, a missing value is an error, `|visible` shows control
    characters.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from unchoke.runs.report.charts import row_bar, table_strip

    places = FileSystemLoader([folder, _TEMPLATES])
    found = Environment(loader=places, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters |= {"visible": visible, "strip": table_strip, "bar": row_bar}
    return found


def template_file(name: str) -> Path:
    """Where a template, a style sheet or a script of ours lies."""
    return _TEMPLATES / name


@cache
def page_parts(*, styles: tuple[str, ...], scripts: tuple[str, ...]) -> dict[str, Any]:
    """The style sheet, the script, and the policy that allows these two and nothing else."""
    from markupsafe import Markup

    style, script = ("".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in names) for names in (styles, scripts))
    allowed = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return {"style": Markup(style), "script": Markup(script), "policy": Markup(policy)}


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def make_thumbnail(image_hwc: NDArray[np.uint8], *, side_px: int = 160) -> str:
    """The image within a square of `side_px`, proportions kept, as a JPEG data URI. Grey and RGBA images are shown as RGB."""
    from PIL import Image

    pixels = image_hwc[..., 0] if image_hwc.ndim == 3 and image_hwc.shape[2] == 1 else image_hwc
    picture = Image.fromarray(pixels).convert("RGB")
    picture.thumbnail((side_px, side_px), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=_JPEG_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def make_sharp_thumbnail(image_hwc: NDArray[np.uint8]) -> str:
    """An RGB picture of few colours (a painted mask), pixel for pixel, as a PNG data URI."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image_hwc).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def safe_thumbnail(value: Any) -> str | None:
    """`value` if it is a JPEG or PNG data URI and nothing else, otherwise None."""
    return value if isinstance(value, str) and _DATA_URI.fullmatch(value) else None
