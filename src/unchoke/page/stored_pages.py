"""Pages that commands wrote, handed to the browser: reports of runs, and views of profiles.

In: the text of a page of ours. Out: a response under that page's own policy, which names its style and script by their digests,
and shut off from everything else here: such a page has no cookie and asks for nothing. Text without such a policy is not
served.
"""

from __future__ import annotations

import re
from html import unescape

from starlette.responses import HTMLResponse

from unchoke.core.errors import DataError

_META = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">')
_SOUND = re.compile(r"(?:[a-z-]+(?: (?:'none'|'sha256-[A-Za-z0-9+/=]+'|data:))+(?:; |$))+")
_APART = "sandbox allow-scripts allow-popups; frame-ancestors 'none'"


def serve_page(text: str, *, of: str) -> HTMLResponse:
    """The page under its own policy; `of` names it where it is refused."""
    found = _META.search(text[:4096])
    policy = unescape(found[1]) if found else ""
    if not _SOUND.fullmatch(policy):
        raise DataError(
            f"{of} is no page of ours",
            code="not-our-page",
            why="it does not say which scripts may run in it",
            try_="write it again",
        )
    return HTMLResponse(text, headers={"Content-Security-Policy": f"{policy}; {_APART}"})
