"""Photos in a store that speaks S3, through the commands: the same features, the same errors, nothing secret written down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import unchoke
from children import same_imports
from conftest import TINY
from unchoke.core.clock import Loading
from unchoke.core.errors import MachineError, UsageError
from unchoke.core.events import ignore
from unchoke.core.remote import RemotePlace
from unchoke.photos.inspect_samples import ListedFile, _in_processes
from unchoke.photos.manifest import load_manifest

SECRET = b"a-secret-that-no-file-may-hold"
SMALL = {"encoder": TINY, "job_size": 4, "workers": 1, "epochs": 3}


@pytest.fixture(scope="module")
def url(store, photos: Path) -> str:  # type: ignore[no-untyped-def]
    return str(store.put_folder("photos", photos))


@pytest.fixture(scope="module")
def features(photos: Path, tiny_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Shards of the same photos in a local folder."""
    out = tmp_path_factory.mktemp("local") / "out"
    unchoke.extract(photos, out=out, on_event=ignore, weights=tiny_weights, encoder=TINY, job_size=4, workers=1)
    return shards(out)


def shards(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "features").rglob("*.npz"))}


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unchoke", *words], capture_output=True, text=True, env=same_imports(), timeout=120, check=False
    )


def test_check_then_fit_then_predict_give_what_a_local_folder_gives(
    url: str, features: dict[str, bytes], tiny_weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert unchoke.check(url, out=out, on_event=ignore).ok
    result = unchoke.fit(url, out=out, on_event=ignore, weights=tiny_weights, **SMALL)
    assert shards(out) == features
    manifest = load_manifest(out / "manifest.csv")
    assert manifest is not None and set(manifest["path"].astype("str").str.startswith(f"{url}/")) == {True}
    predictions = unchoke.predict(result.run, [f"{url}/plum"], out=out, on_event=ignore)
    assert len(predictions.rows) == 14 and not predictions.failed
    written = [file for file in out.rglob("*") if file.is_file()]
    assert not [file for file in written if SECRET in file.read_bytes()]
    assert not (Path.cwd() / "s3:").exists()


def test_a_second_check_reads_what_changed_and_nothing_else(store, photos: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    url = store.put_folder("changing", photos)
    first = unchoke.check(url, out=tmp_path, on_event=ignore)
    store.put("changing/apple/apple 03.jpg", b"no picture any more")
    second = unchoke.check(url, out=tmp_path, on_event=ignore)
    assert first.ok
    assert [finding.code for finding in second.findings if finding.paths or finding.path][:1] == ["unreadable"]
    assert second.timings["check"] < first.timings["check"]


def test_a_table_of_urls_names_the_object_that_vanished(store, url: str, photos: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rows = [f"{url}/{file.relative_to(photos).as_posix()},{file.parent.name}" for file in sorted(photos.rglob("*.jpg"))]
    gone = store.put("gone/leaf 99.jpg", b"x")
    store.remove("gone/leaf 99.jpg")
    table = store.put("tables/labels.csv", "\n".join(["path,label", *rows, f"{gone},leaf"]).encode())
    ended = command("check", table, "--out", str(tmp_path / "out"))
    assert ended.returncode == 1, ended.stderr
    assert "1 row of 43 without an image file: 's3://bucket/gone/leaf 99.jpg'" in ended.stdout


def test_a_table_and_an_image_folder_in_the_store(store, url: str, photos: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rows = [f"{file.stem},{file.parent.name}" for file in sorted(photos.rglob("*.jpg"))]
    table = store.put("tables/ids.csv", "\n".join(["image_id,label", *rows]).encode())
    result = unchoke.check(table, images=[url], out=tmp_path / "out", on_event=ignore)
    assert result.ok and result.num_samples == 42


def test_a_bucket_that_does_not_exist_is_said_in_three_lines(store, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ended = command("check", "s3://no-such-bucket/photos", "--out", str(tmp_path / "out"))
    assert ended.returncode == 2
    assert "error  there is no bucket s3://no-such-bucket" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_a_store_that_does_not_answer_is_said(store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ended = command("check", "s3://bucket/photos", "--out", str(tmp_path / "out"))
    assert ended.returncode == 3
    assert "error  s3://bucket does not answer" in ended.stderr


def test_a_prefix_that_holds_nothing_is_no_folder(store) -> None:  # type: ignore[no-untyped-def]
    assert not RemotePlace("s3://bucket/nothing-here").exists()
    with pytest.raises(UsageError, match="no such file or folder"):
        unchoke.check("s3://bucket/nothing-here", on_event=ignore)


def test_a_workspace_in_a_store_is_refused(url: str) -> None:
    with pytest.raises((UsageError, MachineError), match="would not be on this machine"):
        unchoke.check(url, out="s3://bucket/out", on_event=ignore)


def test_reader_processes_read_urls(url: str, photos: Path) -> None:
    files = [ListedFile(f"{url}/{file.relative_to(photos).as_posix()}", 1, 1) for file in sorted(photos.rglob("*.jpg"))]
    facts = list(_in_processes(files, 2, Loading(), True))
    assert len(facts) == 42
    assert {fact.problem for fact in facts} == {""}


def test_a_fit_that_is_killed_goes_on_to_the_same_bytes(
    url: str, features: dict[str, bytes], tiny_weights: Path, tmp_path: Path
) -> None:
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
