"""`unchoke ui` in a process of its own, really killed: what was decided is there, and the queue goes on where it was."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import threading
import time
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pages import ServedPage, save_findings, serve
from unchoke.curation.data_finding import DataFinding
from unchoke.data.corrections import load_corrections
from unchoke.page.catalogue import photo_id

PHOTOS = [f"apple/apple {number:02d}.jpg" for number in range(14)]


class Visitor:
    """A browser that came in by the printed address."""

    def __init__(self, page: ServedPage) -> None:
        self._place = urlsplit(page.base)
        connection = http.client.HTTPConnection(self._place.netloc, timeout=30)
        connection.request("GET", page.address.removeprefix(page.base))
        cookie = SimpleCookie(connection.getresponse().headers["set-cookie"])
        self._headers = {"Cookie": "; ".join(f"{one.key}={one.value}" for one in cookie.values()), "Origin": page.base}

    def ask(self, method: str, path: str, told: dict[str, str] | None = None) -> str:
        connection = http.client.HTTPConnection(self._place.netloc, timeout=30)
        connection.request(method, path, body=None if told is None else json.dumps(told), headers=self._headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        return text


@pytest.fixture
def reviewed(workspace: Path) -> Path:
    save_findings(
        workspace, [DataFinding("outlier", f"look at number {n}", (photo,), 1 - n / 100) for n, photo in enumerate(PHOTOS)]
    )
    return workspace


def press(visitor: Visitor, page: str, act: str) -> str:
    finding, photo = (page.split(f'data-{name}="')[1].split('"')[0] for name in ("finding", "photo"))
    return visitor.ask("POST", "/decide", {"act": act, "finding": finding, "photo": photo})


def dropped(root: Path) -> set[str]:
    return set(load_corrections(root / "corrections.csv").dropped)


def test_kill_between_two_decisions(reviewed: Path) -> None:
    page = ""
    for number in range(2):
        with serve(reviewed) as served:
            visitor = Visitor(served)
            page = visitor.ask("GET", "/review")
            assert f"look at number {number}" in page
            press(visitor, page, "drop")
            served.kill()
        assert dropped(reviewed) == set(PHOTOS[: number + 1])


@pytest.mark.parametrize("delay_s", [0.15, *(pytest.param(delay_s, marks=pytest.mark.campaign) for delay_s in (0.05, 0.4))])
def test_kill_during_decisions(reviewed: Path, delay_s: float) -> None:
    answered: list[str] = []
    with serve(reviewed) as served:
        visitor = Visitor(served)
        visitor.ask("GET", "/review")

        def decide() -> None:
            for photo in PHOTOS:
                try:
                    visitor.ask("POST", "/decide", {"act": "drop", "finding": "", "photo": photo_id(photo)})
                except (OSError, http.client.HTTPException):
                    return
                answered.append(photo)

        thread = threading.Thread(target=decide)
        thread.start()
        time.sleep(delay_s)
        served.kill()
        thread.join(timeout=30)
    found = dropped(reviewed) if (reviewed / "corrections.csv").exists() else set()
    assert set(answered) <= found
    assert len(found - set(answered)) <= 1  # one may be on the disk whose answer did not arrive


def test_connections_that_ask_nothing_do_not_stop_it(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (128, 128))
        visitor, place = Visitor(served), urlsplit(served.base)
        opened = []
        for _ in range(200):
            one = socket.create_connection((place.hostname, place.port), timeout=30)
            one.send(b"GET / HT")
            opened.append(one)
        assert "unchoke" in visitor.ask("GET", "/")
        for one in opened:
            one.close()
        assert "unchoke" in visitor.ask("GET", "/")


def test_terminate_while_a_page_follows_a_run(reviewed: Path) -> None:
    with serve(reviewed) as served:
        visitor = Visitor(served)
        place = urlsplit(served.base)
        connection = http.client.HTTPConnection(place.netloc, timeout=30)
        connection.request("GET", "/live", headers=visitor._headers)
        assert connection.getresponse().status == 200  # it is followed from now on; the first line may take seconds
        served.process.terminate()
        assert served.process.wait(timeout=20) in (0, -15)
