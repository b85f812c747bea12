"""Nobody else gets in: every address there is, asked for in every wrong way."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.routing import Route

from pages import BASE, OWN, PORT, guest, make_guard, stranger
from unchoke.page.guard import ENTRANCE, POLICY, is_loopback
from unchoke.page.page_app import ROUTES

EXAMPLES = {
    "run": "exp_1",
    "photo": "0" * 16,
    "profile": "0" * 16,
    "mask": "0" * 16,
    "place": "0",
    "layer": "image",
    "name": "page.js",
}


def address(route: Route) -> str:
    path = route.path
    for name, value in EXAMPLES.items():
        path = path.replace(f"{{{name}}}", value).replace(f"{{{name}:int}}", value)
    assert "{" not in path, f"give {path} an example"
    return path


CASES = [(method, address(route)) for route in ROUTES for method in sorted((route.methods or set()) - {"HEAD"})]
HOSTS = ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}", ""]
ORIGINS = [None, "null", "http://evil.example", f"http://localhost:{PORT}", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1"]


def test_no_address_answers_without_the_cookie(finished: Path) -> None:
    client, guesser = stranger(make_guard(finished)), stranger(make_guard(finished))
    guesser.cookies.set(f"unchoke_ui_{PORT}", "guessed")
    found = {case: [one.request(*case, headers=OWN).status_code for one in (client, guesser)] for case in CASES}
    assert len(found) > 15
    assert {case: answers for case, answers in found.items() if answers != [401, 401]} == {}


def test_another_host_name_is_refused_with_the_cookie(finished: Path) -> None:
    """A name that somebody lets point here (DNS rebinding)."""
    client = guest(finished)
    asked = [(*case, host) for case in CASES for host in HOSTS]
    answers = [client.request(*case, headers={"Host": host, "Origin": f"http://{host}"}).status_code for *case, host in asked]
    assert [(one, answer) for one, answer in zip(asked, answers, strict=True) if answer != 403] == []


def test_its_own_address_is_let_in(tmp_path: Path) -> None:
    guard = make_guard(tmp_path, host="127.0.0.2")
    found = stranger(guard).get(ENTRANCE, params={"token": guard.token}, headers={"Host": f"127.0.0.2:{PORT}"})
    assert found.status_code == 200


def test_only_our_own_pages_may_write(workspace: Path) -> None:
    client = guest(workspace)
    asked = [(path, origin) for method, path in CASES if method == "POST" for origin in ORIGINS]
    answers = [client.post(path, headers={"Origin": origin} if origin else {}, json={}).status_code for path, origin in asked]
    assert asked and [(one, answer) for one, answer in zip(asked, answers, strict=True) if answer != 403] == []
    assert not (workspace / "corrections.csv").exists()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_is_refused(tmp_path: Path, site: str) -> None:
    assert guest(tmp_path).get("/photos", headers={"Sec-Fetch-Site": site}).status_code == 403


def test_token_is_good_once_and_becomes_a_cookie(tmp_path: Path) -> None:
    guard = make_guard(tmp_path)
    first = stranger(guard).get(ENTRANCE, params={"token": guard.token})
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert guard.token not in cookie
    assert stranger(guard).get(ENTRANCE, params={"token": guard.token}).status_code == 401


@pytest.mark.parametrize("token", ["", "x", "ä", "%00"])
def test_wrong_token_does_not_use_up_the_right_one(tmp_path: Path, token: str) -> None:
    guard = make_guard(tmp_path)
    assert stranger(guard).get(ENTRANCE, params={"token": token}).status_code == 401
    assert stranger(guard).get(ENTRANCE, params={"token": guard.token}).status_code == 200


def test_head_request_does_not_use_up_the_token(tmp_path: Path) -> None:
    guard = make_guard(tmp_path)
    assert "set-cookie" not in stranger(guard).head(ENTRANCE, params={"token": guard.token}).headers
    assert stranger(guard).get(ENTRANCE, params={"token": guard.token}).status_code == 200


def test_every_answer_carries_the_policy(workspace: Path) -> None:
    client = guest(workspace)
    answers = [client.get(path) for path in ("/", "/photos", "/review", "/speed", "/static/page.js", "/nowhere")]
    for found in (*answers, stranger(make_guard(workspace)).get("/")):
        assert found.headers["content-security-policy"] == POLICY, found.url
        assert found.headers["x-content-type-options"] == "nosniff", found.url
        assert found.headers["referrer-policy"] == "no-referrer", found.url
    assert "unsafe" not in POLICY


def test_socket_is_closed_unheard(tmp_path: Path) -> None:

    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), guest(tmp_path).websocket_connect("/live"):
        pass


def test_open_host_takes_ip_addresses_and_no_names(tmp_path: Path) -> None:
    guard = make_guard(tmp_path, host="0.0.0.0")
    client = stranger(guard)
    assert client.get("/", headers={"Host": f"192.168.1.7:{PORT}"}).status_code == 401
    assert client.get("/", headers={"Host": f"evil.example:{PORT}"}).status_code == 403


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)]
)
def test_loopback_addresses(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_our_own_pages_pass(workspace: Path) -> None:
    client = guest(workspace)
    assert client.get("/", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert client.post("/undo", headers={"Origin": BASE}, json={}).status_code == 200
