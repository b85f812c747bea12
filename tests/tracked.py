"""MLflow's own server for tests, on this machine, with SQLite; and a way to it that loses an answer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def serve_mlflow(folder: Path, command: str = "") -> Iterator[str]:
    """A server that keeps its SQLite file in `folder`; its address. `command` is that of another installation of MLflow."""
    port = free_port()
    where = ["--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", str(folder / "artefacts")]
    start = [command] if command else [sys.executable, "-m", "mlflow"]
    words = [*start, "server", *where, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    path = {} if not command else {"PYTHONPATH": ""}
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **QUIET, **path}, start_new_session=True)
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", server, folder / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(address, timeout=5).read()
            return
        except OSError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.2)
    raise AssertionError(f"no server after two minutes: {log.read_text()}")


@contextmanager
def lose_first_answer(address: str, path: str) -> Iterator[str]:
    """An address that passes requests on to a server; its first answer to a POST that ends in `path` is never given."""
    host = address.removeprefix("http://")
    lost: list[str] = []

    class PassOn(BaseHTTPRequestHandler):
        def pass_on(self) -> None:
            upstream = HTTPConnection(host)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            passed = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            upstream.request(self.command, self.path, body, passed)
            answer = upstream.getresponse()
            content = answer.read()
            self.close_connection = True
            if self.command == "POST" and self.path.endswith(path) and not lost:
                lost.append(self.path)
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = pass_on  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), PassOn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
        assert lost, f"nobody asked for {path}"
    finally:
        server.shutdown()
        server.server_close()
