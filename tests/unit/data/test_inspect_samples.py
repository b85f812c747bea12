"""Files are looked into once: a second run reads only what changed."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from unchoke.core.events import Event, Note, Progress
from unchoke.core.workspace import Workspace
from unchoke.data.file_findings import diagnose_files
from unchoke.data.inspect_samples import inspect_file, inspect_samples, settle_facts
from unchoke.data.sample_set import DataSource, Samples
from unchoke.data.scan import scan_samples

if TYPE_CHECKING:
    import pandas as pd


class Watch:
    """Runs the inspection and counts what it read, by its own progress."""

    def __init__(self, photos: Path, root: Path) -> None:
        self.photos = photos
        self.workspace = Workspace(root)
        self.events: list[Event] = []

    def samples(self) -> Samples:
        return scan_samples(DataSource(self.photos)).samples

    def run(self, *, threads: int = 2) -> pd.DataFrame:
        self.events.clear()
        samples = self.samples()
        facts = inspect_samples(samples, self.workspace, threads=threads, on_event=self.events.append)
        assert facts["path"].tolist() == samples.frame["path"].tolist()
        return facts

    @property
    def num_read(self) -> int:
        return max((event.total for event in self.events if isinstance(event, Progress)), default=0)


@pytest.fixture
def watch(own_photos: Path, tmp_path: Path) -> Watch:
    return Watch(own_photos, tmp_path / "out")


def replace_unseen(file: Path, data: bytes) -> None:
    """Other bytes of the same length under the same time: only reading would notice."""
    stat = file.stat()
    file.write_bytes(data[: stat.st_size].ljust(stat.st_size, b"\0"))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_second_run_reads_nothing(watch: Watch) -> None:
    import pandas as pd

    first = watch.run()
    assert watch.num_read == len(first) == 42
    for file in watch.photos.rglob("*.jpg"):
        replace_unseen(file, b"not a picture at all")
    second = watch.run()
    assert watch.num_read == 0
    pd.testing.assert_frame_equal(second[first.columns], first, check_dtype=False)


def test_only_a_changed_file_is_read_again(watch: Watch) -> None:
    first = watch.run()
    changed = sorted(watch.photos.rglob("*.jpg"))[5]
    others = [file for file in watch.photos.rglob("*.jpg") if file != changed]
    for file in others:
        replace_unseen(file, b"not a picture at all")
    os.utime(changed, ns=(1, 1))
    second = watch.run()
    assert watch.num_read == 1
    assert second["content"].tolist() == first["content"].tolist()
    assert second.loc[second["path"] == str(changed), "mtime_ns"].item() == 1
    changed.write_bytes(b"junk")
    third = watch.run()
    assert watch.num_read == 1
    assert third.loc[third["path"] == str(changed), "problem"].item() == "unreadable"
    assert (third["problem"] != "").sum() == 1


def test_new_files_are_read_and_removed_ones_forgotten(watch: Watch) -> None:
    watch.run()
    files = sorted(watch.photos.rglob("*.jpg"))
    files[0].rename(files[0].with_name("another name.jpg"))
    files[1].unlink()
    facts = watch.run()
    assert (watch.num_read, len(facts)) == (1, 41)
    assert facts["content"].is_unique


@pytest.mark.parametrize("threads", [0, 3])
def test_the_facts_do_not_depend_on_the_threads(watch: Watch, tmp_path: Path, threads: int) -> None:
    import pandas as pd

    other = Watch(watch.photos, tmp_path / "other")
    pd.testing.assert_frame_equal(watch.run(threads=1), other.run(threads=threads))


def test_a_damaged_memory_is_said_and_everything_read_again(watch: Watch) -> None:
    watch.run()
    watch.workspace.checked_file.write_bytes(b"PAR1 not really")
    watch.run()
    assert watch.num_read == 42
    (note,) = (event for event in watch.events if isinstance(event, Note))
    assert note.level == "warning"


def test_broken_file_remembered_unread_tried_again(watch: Watch) -> None:
    files = sorted(watch.photos.rglob("*.jpg"))
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[:-200])
    first = watch.run()
    assert sorted(first.loc[first["problem"] != "", "problem"]) == ["empty", "truncated"]
    second = watch.run()
    assert watch.num_read == 1
    assert second["detail"].tolist() == first["detail"].tolist()


def test_processes_learn_what_threads_learn(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    in_threads = watch.run()
    watch.workspace.checked_file.unlink()
    monkeypatch.setattr("unchoke.data.inspect_samples.worth_processes", lambda *_, **__: True)
    monkeypatch.setattr("unchoke.data.inspect_samples.start_at_once", lambda: True)
    pd.testing.assert_frame_equal(watch.run(), in_threads)


def test_pixels_left_out_decoded_when_asked(watch: Watch) -> None:
    broken = next(watch.photos.rglob("*.jpg"))
    broken.write_bytes(broken.read_bytes()[:-400])
    facts = inspect_samples(watch.samples(), watch.workspace, threads=2, on_event=watch.events.append, decode=False)
    assert (facts["problem"] == "").all()
    assert not facts["decoded"].any()
    found = watch.run()
    assert found.set_index("path")["problem"].to_dict()[str(broken)] == "truncated"
    assert found["decoded"].all()


def test_what_extraction_met_is_remembered(watch: Watch) -> None:
    import pandas as pd

    facts = inspect_samples(watch.samples(), watch.workspace, threads=2, on_event=watch.events.append, decode=False)
    met = facts["path"][3]
    settled = settle_facts(watch.workspace, facts, {met: "truncated: it ends early"}, watch.events.append)
    again = watch.run()
    assert watch.num_read == 0
    pd.testing.assert_frame_equal(again, settled, check_dtype=False)
    assert again.set_index("path").loc[met, ["problem", "detail"]].tolist() == ["truncated", "it ends early"]


def test_wrong_extension_decoded_when_asked(watch: Watch) -> None:
    broken = next(watch.photos.rglob("*.jpg"))
    Image.new("RGB", (90, 80), (9, 200, 30)).save(broken, "PNG")
    broken.write_bytes(broken.read_bytes()[:-60])
    facts = inspect_samples(watch.samples(), watch.workspace, threads=2, on_event=watch.events.append, decode=False)
    assert facts.set_index("path")["problem"].to_dict()[str(broken)] == "wrong-extension"
    assert watch.run().set_index("path")["problem"].to_dict()[str(broken)] == "truncated"


def test_pages_of_a_tiff_are_counted(watch: Watch) -> None:
    first, second = sorted(watch.photos.rglob("*.jpg"))[:2]
    pages = [Image.new("L", (40, 30), shade) for shade in (0, 90, 180)]
    pages[0].save(first.with_suffix(".tif"), save_all=True, append_images=pages[1:])
    smaller = Image.new("L", (20, 15))
    smaller.encoderinfo = {"tiffinfo": {254: 1}}
    pages[0].save(second.with_suffix(".tif"), save_all=True, append_images=[smaller])
    samples = watch.samples()
    facts = watch.run()
    found = {finding.code: finding for finding in diagnose_files(samples, facts)}
    assert found["several-pages"].paths == (str(first.with_suffix(".tif")),)
    assert (found["several-pages"].severity, found["several-pages"].evidence) == ("warning", {"count": 1, "3 pages": 1})


@pytest.mark.parametrize(("bands", "kind"), [(13, "uint16"), (3, "uint16"), (4, "uint8"), (1, "float32"), (2, "float64")])
def test_a_raster_is_told_from_a_damaged_file(tmp_path: Path, bands: int, kind: str) -> None:
    rasterio = pytest.importorskip("rasterio")
    options: dict[str, Any] = {"driver": "GTiff", "height": 24, "width": 32, "count": bands, "dtype": kind}
    with rasterio.open(tmp_path / "a.tif", "w", photometric="MINISBLACK", **options) as file:
        file.write(np.ones((bands, 24, 32), kind))
    facts = inspect_file(str(tmp_path / "a.tif"))
    assert facts.problem == "raster"
    assert kind in facts.detail or "floating" in facts.detail
    (tmp_path / "b.tif").write_bytes((tmp_path / "a.tif").read_bytes()[:40])
    assert inspect_file(str(tmp_path / "b.tif")).problem != "raster"


def test_file_gone_at_its_turn_not_decoded(watch: Watch) -> None:
    broken = next(watch.photos.rglob("*.jpg"))
    broken.write_bytes(broken.read_bytes()[:-400])
    facts = inspect_samples(watch.samples(), watch.workspace, threads=2, on_event=watch.events.append, decode=False)
    settled = settle_facts(watch.workspace, facts, {str(broken): "missing: the file is gone"}, watch.events.append)
    assert settled["path"][~settled["decoded"]].tolist() == [str(broken)]
    assert (settled["problem"] == "").all()
    assert watch.run().set_index("path")["problem"].to_dict()[str(broken)] == "truncated"
    assert watch.num_read == 1


def test_facts_without_pixel_flag_still_count(watch: Watch) -> None:
    import pandas as pd

    facts = watch.run()
    pd.read_parquet(watch.workspace.checked_file).drop(columns="decoded").to_parquet(watch.workspace.checked_file)
    (watch.workspace.root / "SHA256SUMS").unlink()  # nor were there seals
    pd.testing.assert_frame_equal(watch.run(), facts, check_dtype=False)
    assert watch.num_read == 0


@pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and sockets are a matter of POSIX")
def test_no_kind_of_file_stops_the_inspection(tmp_path: Path) -> None:
    (tmp_path / "itself.jpg").symlink_to(tmp_path / "itself.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "file.jpg").write_bytes(b"")
    problems = {
        name: inspect_file(str(tmp_path / name)).problem
        for name in ("itself.jpg", "pipe.jpg", "folder.jpg", "file.jpg/below.jpg", "n" * 300 + ".jpg", "gone.jpg")
    }
    assert list(problems.values()) == ["unreadable"] * 3 + ["missing", "unreadable", "missing"]
    (tmp_path / "endless.jpg").symlink_to("/dev/zero")
    assert inspect_file(str(tmp_path / "endless.jpg")).detail == "a device, not a file"


def test_too_many_open_files_not_blamed_on_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> os.stat_result:
        raise OSError(errno.EMFILE, "Too many open files", path)

    monkeypatch.setattr("unchoke.core.input_file.os.stat", refuse)
    with pytest.raises(OSError) as raised:
        inspect_file("any.jpg")
    assert raised.value.errno == errno.EMFILE
