"""A page over a workspace for tests: a client that is let in, and a server in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.testclient import TestClient

from unchoke.core import atomic
from unchoke.core.workspace import Workspace
from unchoke.curation.data_finding import DataFinding
from unchoke.page.guard import ENTRANCE, Guard
from unchoke.page.page_answers import PageAnswers
from unchoke.page.page_app import build_app
from unchoke.page.page_state import PageState

PORT = 4711
BASE = f"http://127.0.0.1:{PORT}"
OWN = {"Origin": BASE}


def make_guard(root: Path, *, host: str = "127.0.0.1") -> Guard:
    workspace = Workspace(root)
    return Guard(build_app(PageState(workspace, PageAnswers(workspace))), host=host, port=PORT)


def stranger(guard: Guard) -> TestClient:
    """A client without the cookie."""
    return TestClient(guard, base_url=BASE, follow_redirects=False)


def guest(root: Path) -> TestClient:
    """A client that came in by the token, as the browser does."""
    guard = make_guard(root)
    client = stranger(guard)
    assert client.get(ENTRANCE, params={"token": guard.token}).status_code == 200
    return client


def save_findings(root: Path, findings: list[DataFinding]) -> None:
    """What `curate` would have kept."""
    atomic.write_json(root / "curation" / "findings.json", {"findings": [finding.to_dict() for finding in findings]})


@dataclass
class ServedPage:
    """A server in a process: its address with the token, its workspace, and how to end it at once."""

    process: subprocess.Popen[str]
    address: str
    root: Path

    @property
    def base(self) -> str:
        return self.address.partition(ENTRANCE)[0]

    def kill(self) -> None:
        """SIGKILL, as the system would."""
        self.process.kill()
        self.process.wait(timeout=30)


@contextmanager
def serve(root: Path) -> Iterator[ServedPage]:
    """`unchoke ui` as a user starts it."""
    command = [sys.executable, "-m", "unchoke", "ui", "--out", str(root), "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield ServedPage(process, re.findall(r"http://\S+", json.loads(line)["text"])[0], root)
        finally:
            if process.poll() is None:
                process.terminate()
