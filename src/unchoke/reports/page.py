"""What every HTML page of ours has in common: one file, its style and script inside, and a policy that allows these two alone.

In: names of files below `templates/`. Out: the environment that renders them with everything escaped, and the parts of a page.
The policy holds even for text that slipped through: a script that the page did not bring cannot run, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.reports.layout import visible

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment() -> Environment:
    """Renders templates: everything escaped, a missing value is an error, control characters shown by `|visible`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.filters["visible"] = visible
    return found


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
