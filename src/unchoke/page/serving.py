"""The server of the page: binds, says its address, and runs until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from unchoke.core.errors import UsageError
from unchoke.page.guard import ENTRANCE, Guard, is_any_address
from unchoke.page.page_app import build_app
from unchoke.page.page_state import PageState

_PATIENCE_S = 3
"""How long open connections, such as those of live curves, are waited for at the end."""
_MOST_CONNECTIONS = 48
"""Far more than one browser opens, and few enough for a system that allows 128 open files."""
_WAITING = 16
_HEADER_S = 10.0


def serve(state: PageState, *, host: str, port: int, on_ready: Callable[[str], object]) -> None:
    """Serve until interrupted; `on_ready` hears the address once requests are answered."""
    listening = _bind(host, port)
    number: int = listening.getsockname()[1]
    guard = Guard(build_app(state), host=_in_address(host), port=number)
    config = uvicorn.Config(
        guard,
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_WAITING,
        timeout_graceful_shutdown=_PATIENCE_S,
    )
    name = _in_address("127.0.0.1" if is_any_address(host) else host)
    address = f"http://{name}:{number}{ENTRANCE}?token={guard.token}"
    server = _Server(config, on_ready=lambda: on_ready(address), on_end=state.closing.set)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn raises it again once everything is closed: this is how a server ends
        pass
    finally:
        listening.close()


class _Connection(H11Protocol):
    """One connection. Whoever opens many and asks nothing loses the oldest of them, and each after a few seconds."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._opened_s = time.monotonic()
        if len(self.connections) > _MOST_CONNECTIONS:
            silent = [one for one in self.connections if isinstance(one, _Connection) and one.cycle is None]
            min(silent, key=lambda one: one._opened_s).transport.abort()  # this one at least is silent
        self._header_timer = self.loop.call_later(_HEADER_S, self._stop_waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        self._header_timer.cancel()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self.cycle is None:  # no request came whole
            self.transport.abort()


class _Server(uvicorn.Server):
    """Tells when it has begun to answer, and when it is about to end."""

    def __init__(self, config: uvicorn.Config, *, on_ready: Callable[[], object], on_end: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_ready, self._on_end = on_ready, on_end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        asyncio.get_running_loop().set_exception_handler(_say_briefly)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_end()
        await super().shutdown(sockets)


def _say_briefly(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """No traceback for each connection that found no file descriptor: the next ones are accepted a second later."""
    if getattr(context.get("exception"), "errno", None) not in (errno.EMFILE, errno.ENFILE):
        loop.default_exception_handler(context)


def _bind(host: str, port: int) -> socket.socket:
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((bare, port))
    except (OSError, OverflowError) as error:
        found.close()
        raise UsageError(
            f"the page cannot listen on {host} port {port}",
            code="address-in-use",
            why=str(error),
            try_="leave --port out for one that is free, and --host for this machine alone",
        ) from error
    return found


def _in_address(host: str) -> str:
    """As it stands in an address: numbers with colons in brackets."""
    bare = host.strip("[]")
    return f"[{bare}]" if ":" in bare else bare
