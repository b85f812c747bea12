"""Nobody else gets in: every address there is, asked for in every wrong way."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.routing import Route

from pages import BASE, OWN, PORT, guest, make_guard, stranger
from unchoke.local_page.guard import ENTRANCE, POLICY, is_loopback
from unchoke.local_page.page_app import ROUTES

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


@pytest.mark.parametrize(("method", "path"), CASES)
def test_no_address_answers_without_the_cookie(workspace: Path, method: str, path: str) -> None:
    client = stranger(make_guard(workspace))
    assert client.request(method, path, headers=OWN).status_code == 401
    client.cookies.set(f"unchoke_ui_{PORT}", "guessed")
    assert client.request(method, path, headers=OWN).status_code == 401


@pytest.mark.parametrize(("method", "path"), CASES)
@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}", ""]
)
def test_a_name_that_somebody_lets_point_here_is_refused_even_with_the_cookie(
    workspace: Path, method: str, path: str, host: str
) -> None:
    client = guest(workspace)
    assert client.request(method, path, headers={"Host": host, "Origin": f"http://{host}"}).status_code == 403


@pytest.mark.parametrize("path", [path for method, path in CASES if method == "POST"])
@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", f"http://localhost:{PORT}", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1"]
)
def test_only_our_own_pages_may_write(workspace: Path, path: str, origin: str | None) -> None:
    client = guest(workspace)
    headers = {} if origin is None else {"Origin": origin}
    assert client.post(path, headers=headers, json={}).status_code == 403
    assert not (workspace / "corrections.csv").exists()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_asks_for_is_refused(workspace: Path, site: str) -> None:
    assert guest(workspace).get("/photos", headers={"Sec-Fetch-Site": site}).status_code == 403


def test_the_token_is_good_once_and_becomes_a_cookie_that_scripts_and_other_sites_do_not_have(workspace: Path) -> None:
    guard = make_guard(workspace)
    first = stranger(guard).get(ENTRANCE, params={"token": guard.token})
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert guard.token not in cookie
    assert stranger(guard).get(ENTRANCE, params={"token": guard.token}).status_code == 401


@pytest.mark.parametrize("token", ["", "x", "ä", "%00"])
def test_a_wrong_token_does_not_let_in_and_does_not_use_up_the_right_one(workspace: Path, token: str) -> None:
    guard = make_guard(workspace)
    assert stranger(guard).get(ENTRANCE, params={"token": token}).status_code == 401
    assert stranger(guard).get(ENTRANCE, params={"token": guard.token}).status_code == 200


def test_a_look_at_the_headers_does_not_use_up_the_token(workspace: Path) -> None:
    guard = make_guard(workspace)
    assert "set-cookie" not in stranger(guard).head(ENTRANCE, params={"token": guard.token}).headers
    assert stranger(guard).get(ENTRANCE, params={"token": guard.token}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/photos", "/review", "/speed", "/static/page.js", "/nowhere"])
def test_every_answer_carries_the_policy(workspace: Path, path: str) -> None:
    found = guest(workspace).get(path).headers
    assert found["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert found["x-content-type-options"] == "nosniff"
    assert found["referrer-policy"] == "no-referrer"


def test_a_refusal_carries_it_too(workspace: Path) -> None:
    assert stranger(make_guard(workspace)).get("/").headers["content-security-policy"] == POLICY


def test_a_socket_is_closed_unheard(workspace: Path) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), guest(workspace).websocket_connect("/live"):
        pass


def test_for_every_address_of_the_machine_numbers_are_names_and_names_are_not(workspace: Path) -> None:
    guard = make_guard(workspace, host="0.0.0.0")
    client = stranger(guard)
    assert client.get("/", headers={"Host": f"192.168.1.7:{PORT}"}).status_code == 401
    assert client.get("/", headers={"Host": f"evil.example:{PORT}"}).status_code == 403


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)]
)
def test_which_addresses_are_of_this_machine_alone(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_our_own_pages_pass(workspace: Path) -> None:
    client = guest(workspace)
    assert client.get("/", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert client.post("/undo", headers={"Origin": BASE}, json={}).status_code == 200
