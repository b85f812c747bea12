"""Photos in a store that speaks S3, through the commands: the same features, the same errors, nothing secret written down."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import unchoke
from children import same_imports
from conftest import TINY, Once, make_photos
from errors import refused
from unchoke.core.events import Event, Progress, ignore

if TYPE_CHECKING:
    from tests.remote.conftest import Store

SECRET = b"a-secret-that-no-file-may-hold"
SMALL = {"encoder": TINY, "job_size": 4, "workers": 1, "epochs": 3}
NUM_PHOTOS = 18


@pytest.fixture(scope="module")
def few(once: Once) -> Path:
    """Few enough for a store that takes its time over each."""
    return once("remote-photos", lambda folder: make_photos(folder, per_class=NUM_PHOTOS // 3))


@pytest.fixture(scope="module")
def url(store: Store, few: Path) -> str:
    return store.put_folder("photos", few)


@pytest.fixture(scope="module")
def checked(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which the photos were checked, and a worker was tried. To be copied."""
    out, read = tmp_path_factory.mktemp("checked") / "out", Reads()
    assert unchoke.check(url, out=out, on_event=read).ok
    assert read.totals == {NUM_PHOTOS}
    return out


class Reads:
    """How many files a check had to read."""

    def __init__(self) -> None:
        self.totals: set[int | None] = set()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.totals.add(event.total)


@pytest.fixture
def out(checked: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checked, tmp_path / "out"))


@pytest.fixture(scope="module")
def features(few: Path, tiny_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Shards of the same photos in a local folder."""
    out = tmp_path_factory.mktemp("local") / "out"
    unchoke.extract(few, out=out, on_event=ignore, weights=tiny_weights, encoder=TINY, job_size=4, workers=1)
    return shards(out)


def shards(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "features").rglob("*.npz"))}


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unchoke", *words], capture_output=True, text=True, env=same_imports(), timeout=120, check=False
    )


def test_fit_and_predict_as_from_a_local_folder(url: str, features: dict[str, bytes], tiny_weights: Path, out: Path) -> None:
    from unchoke.data.manifest import load_manifest

    result = unchoke.fit(url, out=out, on_event=ignore, weights=tiny_weights, **SMALL)
    assert shards(out) == features
    manifest = load_manifest(out / "manifest.csv")
    assert manifest is not None and set(manifest["path"].astype("str").str.startswith(f"{url}/")) == {True}
    predictions = unchoke.predict(result.run, [f"{url}/plum"], out=out, on_event=ignore)
    assert len(predictions.rows) == NUM_PHOTOS // 3 and not predictions.failed
    written = [file for file in out.rglob("*") if file.is_file()]
    assert not [file for file in written if SECRET in file.read_bytes()]
    assert not (Path.cwd() / "s3:").exists()


def test_a_second_check_reads_what_changed(store: Store, url: str, few: Path, out: Path) -> None:
    name, read = "plum/plum 03.jpg", Reads()
    store.put(f"photos/{name}", b"no picture any more")
    try:
        second = unchoke.check(url, out=out, on_event=read)
    finally:
        store.put(f"photos/{name}", (few / name).read_bytes())
    assert [finding.code for finding in second.findings if finding.paths or finding.path][:1] == ["unreadable"]
    assert read.totals == {1}


def test_a_table_of_urls_names_what_vanished(store: Store, url: str, few: Path, out: Path) -> None:
    rows = [f"{url}/{file.relative_to(few).as_posix()},{file.parent.name}" for file in sorted(few.rglob("*.jpg"))]
    gone = store.put("gone/leaf 99.jpg", b"x")
    store.remove("gone/leaf 99.jpg")
    table = store.put("tables/labels.csv", "\n".join(["path,label", *rows, f"{gone},leaf"]).encode())
    result = unchoke.check(table, out=out, on_event=ignore)
    (finding,) = [one for one in result.findings if one.code == "rows-without-file"]
    assert not result.ok and finding.evidence["cells"] == [gone]


def test_a_table_and_an_image_folder_in_the_store(store: Store, url: str, few: Path, out: Path) -> None:
    rows = [f"{file.stem},{file.parent.name}" for file in sorted(few.rglob("*.jpg"))]
    table = store.put("tables/ids.csv", "\n".join(["image_id,label", *rows]).encode())
    result = unchoke.check(table, images=[url], out=out, on_event=ignore)
    assert result.ok and result.num_samples == NUM_PHOTOS


def test_places_that_cannot_be_read_or_written(store: Store, url: str, tmp_path: Path) -> None:
    from unchoke.core.remote import RemotePlace

    with refused("no-such-bucket", "s3://no-such-bucket"):
        unchoke.check("s3://no-such-bucket/photos", out=tmp_path / "out", on_event=ignore)
    assert not (tmp_path / "out").exists()
    assert not RemotePlace("s3://bucket/nothing-here").exists()
    with refused("no-such-file", "s3://bucket/nothing-here"):
        unchoke.check("s3://bucket/nothing-here", on_event=ignore)
    with refused("workspace-is-remote", "s3://bucket/out"):
        unchoke.check(url, out="s3://bucket/out", on_event=ignore)


@pytest.mark.campaign
def test_a_store_that_does_not_answer(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ended = command("check", "s3://bucket/photos", "--out", str(tmp_path / "out"))
    assert ended.returncode == 3
    assert "s3://bucket" in ended.stderr and "[store-down]" in ended.stderr


def test_reader_processes_read_urls(url: str, few: Path) -> None:
    from unchoke.core.clock import Loading
    from unchoke.data.inspect_samples import ListedFile, _in_processes

    files = [ListedFile(f"{url}/{file.relative_to(few).as_posix()}", 1, 1) for file in sorted(few.rglob("*.jpg"))]
    facts = list(_in_processes(files, 2, Loading(), True))
    assert len(facts) == NUM_PHOTOS
    assert {fact.problem for fact in facts} == {""}


@pytest.mark.campaign
def test_a_killed_fit_goes_on_to_the_same_bytes(url: str, features: dict[str, bytes], tiny_weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["fit", url, "--out", str(out), "--encoder", TINY, "--weights", str(tiny_weights)]
    words += ["--job-size", "4", "--workers", "1", "--epochs", "3"]
    child = subprocess.Popen(
        [sys.executable, "-m", "unchoke", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=same_imports()
    )
    patience_s = time.monotonic() + 120
    while not list(out.rglob("*.npz")) and child.poll() is None and time.monotonic() < patience_s:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert child.returncode == -signal.SIGKILL
    ended = command(*words)
    assert ended.returncode == 0, ended.stderr
    assert shards(out) == features
