"""A small web server on this machine for tests: files by path, a few answers that go wrong first, parts of files on request."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Web:
    """What the server has, and how it misbehaves: `failing` counts down the answers 503 of a path, `asked` counts requests."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    failing: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    ranged: list[str] = field(default_factory=list)
    etags: dict[str, str] = field(default_factory=dict)
    broken: Counter[str] = field(default_factory=Counter)
    """How often a file's connection breaks off in the middle."""


@contextmanager
def serve() -> Iterator[Web]:
    """A server on a free port of the loopback address, for the duration of the `with`."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            web.asked[self.path] += 1
            if web.failing[self.path] > 0:
                web.failing[self.path] -= 1
                self._send(503, b"", body=body)
            elif self.path not in web.files:
                self._send(404, b"", body=body)
            else:
                self._send_file(web.files[self.path], body=body)

        def _send_file(self, data: bytes, *, body: bool) -> None:
            asked = self.headers.get("Range", "")
            if not asked.startswith("bytes="):
                self._send(200, data, body=body)
                return
            web.ranged.append(self.path)
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start = int(first) if first else len(data) - int(last)
            end = min(int(last) + 1, len(data)) if first and last else len(data)
            self._send(206, data[start:end], body=body, part=f"bytes {start}-{end - 1}/{len(data)}")

        def _send(self, status: int, data: bytes, *, body: bool, part: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Accept-Ranges", "bytes")
            if status in (200, 206):
                self.send_header("ETag", f'"{web.etags.get(self.path, hash(web.files[self.path]))}"')
                self.send_header("X-Repo-Commit", "0" * 40)  # as a model hub has it
            if part:
                self.send_header("Content-Range", part)
            self.end_headers()
            if body and web.broken[self.path] > 0:
                web.broken[self.path] -= 1
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
            elif body:
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
