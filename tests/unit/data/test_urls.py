"""Samples behind URLs: the same ones, in the same order, as from a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import make_photos
from errors import refused
from unchoke.core import stores
from unchoke.core.events import ignore
from unchoke.core.remote import locate
from unchoke.core.workspace import Workspace
from unchoke.data.inspect_samples import inspect_file, inspect_samples, read_size
from unchoke.data.sample_set import DataSource
from unchoke.data.scan import scan_samples
from unchoke.pixels.image import DecodeError, read_planned
from web import Web, serve


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("urls") / "photos", per_class=4)


@pytest.fixture
def store(local: Path) -> Iterator[str]:
    """The photos in memory, as a store has them."""
    import fsspec

    memory = fsspec.filesystem("memory")
    for file in sorted(local.rglob("*.jpg")):
        memory.pipe_file(f"/store/photos/{file.relative_to(local).as_posix()}", file.read_bytes())
    yield "memory://store"
    memory.rm("/store", recursive=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Web]:
    with serve() as found:
        yield found


@pytest.fixture
def web(server: Web, local: Path, monkeypatch: pytest.MonkeyPatch) -> Web:
    """As if it had just been started: ending a server takes half a second."""
    monkeypatch.setattr(stores, "WAITS_S", (0.0, 0.0, 0.0))
    for kept in (server.files, server.failing, server.asked, server.ranged):
        kept.clear()
    for file in sorted(local.rglob("*.jpg")):
        server.files[f"/{file.parent.name}/{file.name.replace(' ', '_')}"] = file.read_bytes()
    return server


def put(url: str, data: bytes) -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file(url.removeprefix("memory:/"), data)


def test_class_folders_give_the_samples_of_a_local_folder(local: Path, store: str) -> None:
    here = scan_samples(DataSource(local)).samples.frame
    there = scan_samples(DataSource(locate(f"{store}/photos"))).samples.frame
    assert there["sample_id"].tolist() == here["sample_id"].tolist()
    assert there["label"].tolist() == here["label"].tolist()
    assert there["path"][0] == "memory://store/photos/apple/apple 00.jpg"


def test_remote_facts_match_local_and_are_kept(local: Path, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = DataSource(locate(f"{store}/photos"))
    workspace = Workspace(tmp_path)
    first = inspect_samples(scan_samples(source).samples, workspace, threads=1, on_event=ignore)
    here = inspect_samples(scan_samples(DataSource(local)).samples, Workspace(tmp_path / "other"), threads=1, on_event=ignore)
    assert first["content"].tolist() == here["content"].tolist()
    put(f"{store}/photos/leaf/leaf 01.jpg", b"not a picture")
    read = []
    monkeypatch.setattr("unchoke.pixels.image.read_url", lambda url: read.append(url) or stores.read_url(url))
    again = inspect_samples(scan_samples(source).samples, workspace, threads=1, on_event=ignore)
    assert read == [f"{store}/photos/leaf/leaf 01.jpg"]
    assert again["problem"].tolist().count("unreadable") == 1


def test_a_table_beside_its_images_in_a_store(local: Path, store: str) -> None:
    rows = [f"{file.relative_to(local).as_posix()},{file.parent.name}" for file in sorted(local.rglob("*.jpg"))]
    put(f"{store}/photos/labels.csv", ("path,label\n" + "\n".join(rows)).encode())
    scan = scan_samples(DataSource(locate(f"{store}/photos/labels.csv")))
    assert scan.samples.frame["sample_id"].tolist() == sorted(row.rpartition(",")[0] for row in rows)
    assert not scan.findings or {finding.code for finding in scan.findings} <= {"few-samples"}


def test_a_local_table_with_images_in_a_store(local: Path, store: str, tmp_path: Path) -> None:
    rows = [f"{file.stem},{file.parent.name}" for file in sorted(local.rglob("*.jpg"))]
    table = tmp_path / "labels.csv"
    table.write_text("image_id,label\n" + "\n".join(rows))
    scan = scan_samples(DataSource(table, images=(locate(f"{store}/photos"),)))
    assert len(scan.samples) == 12
    assert set(scan.samples.frame["path"].astype("str").str.startswith("memory://store/photos/")) == {True}


def test_a_parquet_table_in_a_store(store: str) -> None:
    import io

    import pandas as pd

    buffer = io.BytesIO()
    names = [f"{name}/{name} 0{number}.jpg" for name in ("apple", "plum") for number in range(4)]
    pd.DataFrame({"path": names, "label": [name.partition("/")[0] for name in names]}).to_parquet(buffer)
    put(f"{store}/photos/labels.parquet", buffer.getvalue())
    assert len(scan_samples(DataSource(locate(f"{store}/photos/labels.parquet"))).samples) == 8


def test_table_of_urls_with_missing_file(web: Web, tmp_path: Path) -> None:
    urls = [web.url + path for path in sorted(web.files)]
    rows = [f"{url},{url.split('/')[3]}" for url in [*urls, f"{web.url}/apple/gone.jpg"]]
    table = tmp_path / "labels.csv"
    table.write_text("url,label\n" + "\n".join(rows))
    scan = scan_samples(DataSource(table))
    assert scan.samples.frame["path"].tolist() == urls
    assert scan.samples.frame["sample_id"].tolist() == urls
    (missing,) = [finding for finding in scan.findings if finding.code == "rows-without-file"]
    assert "apple/gone.jpg" in missing.message


def test_web_addresses_beside_local_files_are_not_asked_for(web: Web, local: Path, tmp_path: Path) -> None:
    rows = [f"{file},{web.url}/{file.name},{file.parent.name}" for file in sorted(local.rglob("*.jpg"))]
    table = tmp_path / "labels.csv"
    table.write_text("path,source,label\n" + "\n".join(rows))
    assert len(scan_samples(DataSource(table, images=(local,))).samples) == 12
    assert not web.asked


def test_a_signed_address_in_a_table_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("path,label\nhttps://127.0.0.1:9/a.jpg?X-Amz-Signature=abc,a\n")
    with refused("secret-in-url", "127.0.0.1:9/a.jpg"):
        scan_samples(DataSource(table))


def test_a_table_of_web_addresses_behind_a_web_address(web: Web) -> None:
    rows = [f"{web.url}{path},{path.split('/')[1]}" for path in sorted(web.files)]
    web.files["/labels.csv"] = ("path,label\n" + "\n".join(rows)).encode()
    assert len(scan_samples(DataSource(locate(f"{web.url}/labels.csv"))).samples) == 12


@pytest.mark.parametrize("name", ["photos", "photos/", "images.zip"])
def test_a_folder_of_a_web_server_cannot_be_listed(web: Web, name: str) -> None:
    with refused("cannot-list", web.url):
        scan_samples(DataSource(locate(f"{web.url}/{name}")))


def test_a_name_nearly_right_is_suggested(store: str) -> None:
    with refused("no-such-file", "unchoke check memory://store/photos"):
        scan_samples(DataSource(locate(f"{store}/photo")))


def test_a_url_that_went_through_pathlib_is_explained() -> None:
    with refused("no-such-file", "'s3://bucket/photos'"):
        scan_samples(DataSource(Path("s3://bucket/photos")))


def test_a_store_without_images_says_so(store: str) -> None:
    put(f"{store}/empty/readme.txt", b"x")
    with refused("no-images", "memory://store/empty"):
        scan_samples(DataSource(locate(f"{store}/empty")))


def test_url_not_handed_out_named_with_reason(web: Web) -> None:
    path = next(iter(web.files))
    web.failing[path] = 1000
    facts = inspect_file(web.url + path)
    assert (facts.problem, facts.content) == ("unreachable", "")
    assert "503" in facts.detail


def test_url_changed_since_planned_refused(store: str) -> None:
    url = f"{store}/photos/leaf/leaf 00.jpg"
    content = inspect_file(url).content
    assert read_planned(url, content)
    put(url, b"another content")
    with pytest.raises(DecodeError, match=r"^changed: "):
        read_planned(url, content)


def test_a_size_is_read_from_the_beginning_of_a_file(web: Web) -> None:
    path = next(iter(web.files))
    web.files[path] += b"\0" * 400_000
    assert read_size(web.url + path) == (96, 72)
    assert web.ranged == [path]
