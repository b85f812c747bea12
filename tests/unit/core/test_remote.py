from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from errors import refused
from unchoke.core import listing, stores
from unchoke.core.fingerprint import digest_bytes, digest_file
from unchoke.core.input_file import open_plain
from unchoke.core.remote import RemotePlace, join, locate
from unchoke.core.stores import NO_STAMP, StoreError, read_url, stamp, stat_url
from unchoke.core.urls import hide_secrets, is_url, refuse_secrets, url_behind
from web import Web, serve


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(stores, "WAITS_S", (0.0, 0.0, 0.0))
    with serve() as found:
        yield found


def test_a_path_stays_a_path_and_a_url_keeps_its_slashes() -> None:
    assert locate("photos/a") == Path("photos/a")
    assert str(locate("s3://bucket/photos/")) == "s3://bucket/photos"
    assert locate("file" + ":///data/photos") == Path("/data/photos")
    assert not is_url("C:/photos") and not is_url(Path("s3://bucket"))
    assert url_behind(Path("s3://bucket/x")) == "s3://bucket/x" and url_behind(Path("/data/s3:/x")) == ""


def test_a_remote_place_has_the_names_of_a_path() -> None:
    place = RemotePlace("s3://bucket/photos/a.JPG")
    assert (place.name, place.stem, place.suffix) == ("a.JPG", "a", ".JPG")
    assert place.parent == RemotePlace("s3://bucket/photos")
    assert place.parents == (RemotePlace("s3://bucket/photos"), RemotePlace("s3://bucket"))
    assert place.parent / "../b/./c.png" == RemotePlace("s3://bucket/b/c.png")
    assert RemotePlace("https://host/a.jpg?download=1").name == "a.jpg"
    assert join(place.parent, "b.jpg") == RemotePlace("s3://bucket/photos/b.jpg")
    assert join(place.parent, "gs://other/b.jpg") == RemotePlace("gs://other/b.jpg")
    assert join(Path("/data"), "b.jpg") == Path("/data/b.jpg")


@pytest.mark.parametrize(
    "url",
    [
        "https://name:word@host/labels.csv",
        "https://ghp_token@host/labels.csv",
        "s3://key:secret@bucket/photos",
        "https://host/a.jpg?X-Amz-Signature=abcdef",
        "https://host/a.jpg?sv=2024&sig=abc",
        "https://host/a.jpg?v=0123456789012345678901234",
    ],
)
def test_url_with_a_secret_is_refused_unquoted(url: str) -> None:
    with refused("secret-in-url") as caught:
        locate(url)
    said = f"{caught.value.what}{caught.value.why}"
    assert not any(secret in said for secret in ("word@", "ghp_", "secret@", "abc", "0123456789"))


def test_plain_queries_and_at_signs_in_names_are_no_secrets() -> None:
    refuse_secrets("https://host/a.jpg?download=1", "hf://datasets/a/b@main/c.jpg", "sftp://me@host/a.jpg", "photos/a@b", None)


def test_urls_in_foreign_messages_lose_their_queries() -> None:
    said = "403, url='https://name:word@cdn/x.jpg?X-Amz-Signature=abc' and s3://bucket/y"
    assert hide_secrets(said) == "403, url='https://…@cdn/x.jpg?…' and s3://bucket/y"


def test_stamp_changes_with_the_tag_in_one_second() -> None:
    first, second = ({"mtime": 1_700_000_000.0, "ETag": tag} for tag in ("a", "b"))
    assert stamp(first) != stamp(second)
    assert stamp(first) // 10**9 == 1_700_000_000
    assert stamp({"size": 3}) == NO_STAMP


def test_a_server_that_fails_twice_is_asked_again(web: Web) -> None:
    web.files["/a.jpg"], web.failing["/a.jpg"] = b"bytes", 2
    assert read_url(f"{web.url}/a.jpg") == b"bytes"
    assert web.asked["/a.jpg"] == 3


def test_failing_server_is_named_after_a_few_tries(web: Web) -> None:
    web.failing["/a.jpg"] = 100
    with pytest.raises(StoreError, match="4 tries: HTTP status 503"):
        read_url(f"{web.url}/a.jpg")


def test_a_file_that_is_not_there_is_asked_for_once(web: Web) -> None:
    with pytest.raises(FileNotFoundError):
        read_url(f"{web.url}/none.jpg")
    assert web.asked["/none.jpg"] == 1


def test_a_store_that_answers_nobody_ends_the_command(web: Web) -> None:
    web.failing["/a.jpg"] = 10_000

    def ask_many() -> None:
        for _ in range(100):
            with pytest.raises(StoreError):
                read_url(f"{web.url}/a.jpg")

    with refused("store-down"):
        ask_many()


def test_a_host_that_answered_and_ended_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stores, "WAITS_S", (0.0, 0.0, 0.0))
    (tmp_path / "a.jpg").write_bytes(b"bytes")
    server = HTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))  # keeps no connections
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    url = f"http://127.0.0.1:{server.server_port}/a.jpg"
    try:
        assert read_url(url) == b"bytes"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
    with refused("store-down"):
        read_url(url)


def test_a_host_that_never_answered_is_a_matter_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may name files of many hosts: the others are read all the same."""
    monkeypatch.setattr(stores, "WAITS_S", (0.0, 0.0, 0.0))
    with pytest.raises(StoreError, match="4 tries"):
        read_url("http://127.0.0.1:9/a.jpg")


def test_changed_file_has_another_stamp(web: Web) -> None:
    web.files["/a.bin"] = b"0123456789"
    before = stat_url(f"{web.url}/a.bin")
    assert before[0] == 10
    assert read_url(f"{web.url}/a.bin", 2, 5) == b"234"
    web.files["/a.bin"] = b"9876543210"
    assert stat_url(f"{web.url}/a.bin")[1] != before[1]


def test_parts_of_a_remote_file_are_fetched(web: Web) -> None:
    data = os.urandom(3 * stores.BLOCK_BYTES + 1000)
    web.files["/a.bin"] = data
    with open_plain(f"{web.url}/a.bin") as file:
        assert file.read(10) == data[:10]
        file.seek(-500, os.SEEK_END)
        assert file.read() == data[-500:]
        assert len(web.ranged) == 2
        file.seek(stores.BLOCK_BYTES - 5)
        assert file.read(stores.BLOCK_BYTES) == data[stores.BLOCK_BYTES - 5 : 2 * stores.BLOCK_BYTES - 5]
        file.seek(5, os.SEEK_END)
        assert file.read(5) == b""
    assert digest_file(f"{web.url}/a.bin") == digest_bytes(data)
    with pytest.raises(FileNotFoundError):
        open_plain(f"{web.url}/none.bin")


def test_web_folders_are_refused_with_what_to_give() -> None:
    with refused("cannot-list") as caught:
        list(listing.walk(RemotePlace("https://127.0.0.1:9/photos")))
    assert "table" in caught.value.try_


def test_an_unknown_scheme_is_named_with_the_known_ones() -> None:
    with refused("unknown-scheme", "xyz://") as caught:
        RemotePlace("xyz://a/b").exists()
    assert "s3://" in caught.value.why


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(importlib.import_module("fsspec.registry")._registry, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with refused("missing-extra") as caught:
        RemotePlace("s3://bucket/x").exists()
    assert caught.value.try_ == "pip install 'unchoke[remote]'"


def test_a_missing_place_says_what_lies_beside_it() -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file("/beside/photos/a.jpg", b"x")
    place = RemotePlace("memory://beside/photo")
    assert not place.exists()
    assert RemotePlace("memory://beside/photos").is_dir() and RemotePlace("memory://beside/photos/a.jpg").is_file()
    assert listing.names(place.parent) == ["photos"]


def test_a_folder_behind_a_url_is_listed_as_a_local_one(tmp_path: Path) -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    for name in ("b/2.jpg", "b/10.jpg", "b.jpg", "a/x/1.jpg", ".hidden/3.jpg", "a/.4.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
        store.pipe_file(f"/listed/{name}", name.encode())
    here = [(entry.relative, entry.size_bytes) for entry in listing.walk(tmp_path)]
    there = list(listing.walk(RemotePlace("memory://listed")))
    assert [(entry.relative, entry.size_bytes) for entry in there] == here
    assert {entry.path for entry in there} == {f"memory://listed/{relative}" for relative, _ in here}
    assert all(entry.mtime_ns > 0 for entry in there)


def test_files_are_looked_up_one_by_one_or_by_their_folder() -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    for number in range(30):
        store.pipe_file(f"/looked/many/{number}.jpg", b"x" * number)
    store.pipe_file("/looked/few/a.jpg", b"abc")
    urls = [f"memory://looked/many/{number}.jpg" for number in range(31)] + [
        "memory://looked/few/a.jpg",
        "memory://looked/few/b.jpg",
    ]
    found = listing.look_up(urls)
    assert [entry.path for entry in found] == [*urls[:30], urls[31]]
    assert [entry.size_bytes for entry in found] == [*range(30), 3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_makes_file_systems_of_its_own(web: Web) -> None:
    web.files["/a.jpg"] = b"bytes"
    assert read_url(f"{web.url}/a.jpg") == b"bytes"
    child = os.fork()
    if child == 0:
        os._exit(0 if read_url(f"{web.url}/a.jpg") == b"bytes" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
