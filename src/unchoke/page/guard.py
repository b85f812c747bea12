"""Who may see the page: every request passes here, and nothing else decides.

In: requests. Out: the same requests, once they came to the right name, from our own pages, with the cookie; or a refusal. The
token of the printed address is good once and becomes that cookie. Responses leave with a policy under which only our own script
runs.
"""

from __future__ import annotations

import ipaddress
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ENTRANCE = "/enter"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_READING = ("GET", "HEAD")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STRANGER = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><title>unchoke: not let in</title>'
    "<h1>This browser is not let in</h1>"
    "<p>The address that <code>unchoke ui</code> printed opens the page in one browser, once. It was used already, or it belongs "
    "to a command that has ended since.</p>"
    "<p>For this browser, type the same command again in another terminal and open the address that it prints:</p>"
    "<pre>unchoke ui</pre>"
    "<p>with the same <code>--out</code>, where you gave one. The browser that was let in before stays so.</p></html>"
)
"""Says nothing of the workspace: whoever asks may be anybody."""
_ONWARD = (
    '<!doctype html><meta charset="utf-8"><title>unchoke</title><link rel="icon" href="/static/icon.svg">'
    '<meta http-equiv="refresh" content="0; url=/"><a href="/">go on</a>'
)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_any_address(host: str) -> bool:
    """Whether it stands for every address of this machine."""
    return host in ("0.0.0.0", "::", "[::]")


class Guard:
    """The one middleware. `token` is for the address to print; `host` and `port` are those the server listens on."""

    def __init__(self, app: ASGIApp, *, host: str, port: int) -> None:
        self._app = app
        self._port = port
        self._any_number = is_any_address(host)
        self._names = {host, *(_LOOPBACK if is_loopback(host) or self._any_number else ())}
        self.token = secrets.token_urlsafe(32)
        self._unused: str | None = self.token
        self._key = secrets.token_urlsafe(32)
        self.cookie = f"unchoke_ui_{port}"
        """Its name holds the port: cookies of one address are shared by all its ports."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there is no socket of ours
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = self._answer(scope)
        await (answer or self._app)(scope, receive, _with_headers(send))

    def _answer(self, scope: Scope) -> Response | None:
        """A refusal, or the way in; None for a request that may pass."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            return PlainTextResponse("403: this server has another name\n", 403)
        if scope["path"] == ENTRANCE and scope["method"] in _READING:
            return self._enter(scope)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return PlainTextResponse("403: asked for by another site\n", 403)
        if not self._knows(headers.get("cookie", "")):
            return HTMLResponse(_STRANGER, 401)
        if scope["method"] not in _READING and headers.get("origin") != f"http://{host}":
            return PlainTextResponse("403: only our own pages may write\n", 403)
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether a `Host` header names this server: a name that somebody lets point here does not."""
        name, _, port = host.rpartition(":")
        if port != str(self._port):
            return False
        return name in self._names or (self._any_number and _is_number(name))

    def _enter(self, scope: Scope) -> Response:
        """A page that leads on: a redirect would count as the other site's, and a strict cookie would stay behind."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if self._unused is None or not secrets.compare_digest(given.encode(), self._unused.encode()):
            known = self._knows(Headers(scope=scope).get("cookie", ""))
            return HTMLResponse(_ONWARD) if known else HTMLResponse(_STRANGER, 401)
        if scope["method"] == "HEAD":
            return HTMLResponse(_ONWARD)
        self._unused = None
        answer = HTMLResponse(_ONWARD)
        answer.set_cookie(self.cookie, self._key, httponly=True, samesite="strict", path="/")
        return answer

    def _knows(self, header: str) -> bool:
        try:
            found = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self._key.encode())


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    """What every response carries, unless it says otherwise itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
