"""`unchoke ui`: the page of a workspace, served until Ctrl-C.

In: a workspace, also one that is empty or in which a command works. Out: how many decisions were written meanwhile. The
workspace is not owned: training goes on beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unchoke.core.errors import UnchokeError, UsageError, missing_extra
from unchoke.core.events import Note, OnEvent
from unchoke.core.units import format_count
from unchoke.core.workspace import DEFAULT_ROOT, Workspace, out_option
from unchoke.runs.session import default_listener

THIS_MACHINE = "127.0.0.1"
_MOST_PORT = 65_535
_ELSEWHERE = (
    "other machines can reach this page. Whoever opens the address first, with its token, sees the photos and may decide about "
    "them; nothing is encrypted. In a network that you do not trust, leave --host out and use `ssh -L`"
)


@dataclass(frozen=True)
class UiResult:
    """What came of a page that was served."""

    workspace: Path
    """The folder that was shown."""
    num_decisions: int
    """Lines that were added to its corrections.csv meanwhile."""

    def to_dict(self) -> dict[str, Any]:
        return {"workspace": str(self.workspace), "num_decisions": self.num_decisions}

    def to_text(self) -> str:
        if not self.num_decisions:
            return "closed; no decisions were made"
        written = f"{format_count(self.num_decisions, 'line')} added to {Workspace(self.workspace).corrections_file}"
        return f"closed; {written}\nnext    unchoke fit{out_option(self.workspace)}, which uses them"


def ui(
    *,
    out: str | Path | None = None,
    port: int = 0,
    host: str = THIS_MACHINE,
    browser: bool = True,
    on_ready: Callable[[str], object] | None = None,
    on_event: OnEvent | None = None,
) -> UiResult:
    """Serve the workspace as a local page until interrupted: runs as they train, photos, decisions about them.

    Args:
        out: Workspace folder (default unchoke-out); it may be empty, or in use.
        port: Port to listen on; 0 for one that is free.
        host: Address to listen on; another one than 127.0.0.1 lets other machines in.
        browser: Whether the page is opened in the browser.
        on_ready: Hears the address, which holds a token that is good once, as soon as requests are answered.
        on_event: Hears what happens, as values of `unchoke.core.events`; without it, lines are shown.

    Returns:
        How many decisions were written meanwhile.

    Example:
        >>> unchoke.ui(out="work").num_decisions  # doctest: +SKIP
        12
    """
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise missing_extra(package, extra="ui", purpose="the page")
    if not 0 <= port <= _MOST_PORT:
        raise UsageError(
            f"there is no port {port}",
            code="bad-port",
            why=f"they go from 1 to {_MOST_PORT:,}",
            try_="leave --port out for one that is free",
        )
    if not host.strip():
        raise UsageError(
            "--host '' is no address", code="bad-host", why="it would be every one of this machine", try_="leave --host out"
        )
    from unchoke.page.guard import is_loopback
    from unchoke.page.page_answers import PageAnswers
    from unchoke.page.page_state import PageState
    from unchoke.page.serving import serve

    workspace = Workspace(Path(out) if out is not None else DEFAULT_ROOT)
    workspace.refuse_links()
    listener = on_event or default_listener()
    state = PageState(workspace, PageAnswers(workspace))
    if not workspace.root.exists():
        listener(Note(f"there is no workspace {workspace.root} yet: the page is empty until a command works there", "warning"))
    if not is_loopback(host):
        listener(Note(_ELSEWHERE, "warning"))

    def ready(address: str) -> None:
        listener(Note(f"{address} opens {workspace.root}, once; Ctrl-C ends it"))
        if on_ready is not None:
            on_ready(address)
        if browser:
            threading.Thread(target=_open_browser, args=(address, listener), daemon=True).start()

    _look_ahead(state)
    serve(state, host=host, port=port, on_ready=ready)
    return UiResult(workspace.root, state.review.num_written)


def _look_ahead(state: Any) -> None:
    """List the photos before the address is said, so that no page waits for it; what goes wrong is told on the page."""
    try:
        state.catalogue()
    except (UnchokeError, OSError):
        return


def _open_browser(address: str, listener: OnEvent) -> None:
    import webbrowser

    if not webbrowser.open(address):
        listener(Note("no browser could be opened here: open the address above in one, or say --no-browser", "warning"))
