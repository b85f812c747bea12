"""Files sent to nodes, with names, neighbours and times and values that name them rewritten; and files uploaded from them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest

from errors import refused
from unchoke.jobs.cluster.file_transfer import (
    MOST_SENT_BYTES,
    FileSet,
    FileStore,
    NeededFile,
    SentFile,
    marked,
    put_in_place,
    too_much,
    with_paths,
    writing_for,
)


class Corner(NamedTuple):
    path: str
    row: int


@dataclass(frozen=True)
class Spec:
    name: str
    files: tuple[str, ...]
    corner: Corner
    beside: dict[str, list[str]]
    inner: Spec | None = None


def spec(path: str) -> Spec:
    inner = Spec("inner", (path,), Corner("elsewhere", 1), {})
    return Spec("scene", ("a.tif", path), Corner(path, 3), {"mask": [path, "c"]}, inner)


def test_names_of_files_are_replaced_wherever_they_stand() -> None:
    assert with_paths(spec("b.tif"), {"b.tif": "/there/b.tif"}) == spec("/there/b.tif")


def test_what_names_no_file_stays_the_very_same() -> None:
    before = spec("b.tif")
    assert with_paths(before, {"b": "no whole name"}) is before


def make_files(folder: Path) -> list[str]:
    for name in ("one/a.tif", "one/a.tif.aux.xml", "two/a.tif"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
        os.utime(folder / name, ns=(10**18 + len(name), 10**18 + len(name)))
    return [str(folder / name) for name in ("one/a.tif", "one/a.tif.aux.xml", "two/a.tif")]


def test_what_is_sent_keeps_names_neighbours_and_times(tmp_path: Path) -> None:
    names = make_files(tmp_path)
    store = FileStore()
    store.take_in(FileSet.of("scene", names).read())
    places = store.places("scene")
    for name in names:
        assert Path(places[name]).read_bytes() == Path(name).read_bytes()
        assert Path(places[name]).stat().st_mtime_ns == Path(name).stat().st_mtime_ns
    assert places[names[1]] == f"{places[names[0]]}.aux.xml"
    assert Path(places[names[2]]).parent != Path(places[names[0]]).parent
    assert store.restore_names(f"{places[names[0]]} is torn") == f"{names[0]} is torn"


def test_file_is_seen_by_its_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = FileSet.of("scene", ["one/a.tif", "gone.tif"])
    monkeypatch.chdir("/")
    assert found.is_here() and found.places() == {"one/a.tif": str(tmp_path / "one/a.tif")}
    (tmp_path / "one/a.tif").write_text("one/b.tif")
    assert not found.is_here()


def test_a_file_that_is_gone_by_then_is_not_sent(tmp_path: Path) -> None:
    names = make_files(tmp_path)
    found = FileSet.of("scene", names)
    Path(names[0]).unlink()
    assert list(found.read().copies) == names[1:]


def test_tasks_wait_for_files_and_hear_of_damage(tmp_path: Path) -> None:
    store, sent = FileStore(), FileSet.of("scene", make_files(tmp_path)).read()
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(len(store.places("scene"))))
    waiting.start()
    store.take_in(sent)
    waiting.join()
    assert found == [3]
    name, copy = next(iter(sent.copies.items()))
    damaged = sent._replace(key="torn", copies={name: copy._replace(file=replace(copy.file, data=b"else"))})
    with refused("damaged-transfer", "a.tif"):
        store.take_in(damaged)
    with refused("files-not-on-node", "torn"):
        store.places("torn")


def test_too_much_is_said_with_its_size() -> None:
    def made_of(size_bytes: int) -> FileSet:
        return FileSet("scene", (NeededFile("a", "/a", size_bytes, 0),))

    assert too_much([], free_bytes=0) == ""
    assert too_much([made_of(1000)], free_bytes=10_000) == ""
    assert "1.1 GB" in too_much([made_of(MOST_SENT_BYTES + 1)], free_bytes=10**15)
    assert "free on its disk" in too_much([made_of(6000)], free_bytes=10_000)


@pytest.mark.skipif(sys.platform == "win32", reason="hosts end otherwise there")
def test_what_was_sent_goes_with_the_host_however_it_ends(tmp_path: Path) -> None:
    code = "import os, signal\nfrom unchoke.jobs.cluster.file_transfer import FileStore\nprint(FileStore().folder, flush=True)\n"
    ended = subprocess.run([sys.executable, "-c", code + "os.kill(os.getpid(), signal.SIGKILL)"], capture_output=True, text=True)
    folder, end = Path(ended.stdout.strip()), time.monotonic() + 30
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert folder.name.startswith("sent-") and not folder.exists()


def test_a_folder_is_known_by_its_mark_and_the_mark_goes(tmp_path: Path) -> None:
    with marked(tmp_path / "features") as shared:
        assert shared.is_here()
        assert not replace(shared, folder=tmp_path).is_here()
        assert not replace(shared, content="another").is_here()
    assert list((tmp_path / "features").iterdir()) == []


def test_what_is_written_to_a_shared_folder_does_not_travel(tmp_path: Path) -> None:
    with marked(tmp_path) as shared, writing_for(shared, shares=True) as (folder, files):
        assert folder == tmp_path
    assert files == {}


def test_what_is_written_elsewhere_is_uploaded_as_it_was(tmp_path: Path) -> None:
    with marked(tmp_path / "home") as shared:
        with writing_for(shared, shares=False) as (folder, files):
            assert folder != tmp_path / "home"
            (folder / "deep").mkdir()
            (folder / "deep" / "one.bin").write_bytes(b"one")
            (folder / "two.bin").write_bytes(b"two")
        assert not folder.exists()
        put_in_place(tmp_path / "home", files, artefact="two.bin")
    assert (tmp_path / "home" / "deep" / "one.bin").read_bytes() == b"one"
    assert (tmp_path / "home" / "two.bin").read_bytes() == b"two"


def test_file_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    good = SentFile(b"good", "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c")
    with refused("damaged-transfer", "a.bin"):
        put_in_place(tmp_path, {"a.bin": replace(good, data=b"bad"), "z.bin": good}, artefact="z.bin")
    assert not (tmp_path / "z.bin").exists()
