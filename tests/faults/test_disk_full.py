"""No room for a shard, a checkpoint or the database: a clear error, nothing half-written, and on it goes once there is room.

Once on a disk that is really full (a small one made for the test, which needs root), once under a limit on file sizes.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import scene
from tests.conftest import Once

DISK_BYTES = 64 * 2**20
WIDE_HEAD = ("--head", "mlp", "--epochs", "3")
"""A head whose checkpoint is larger than anything else that training writes."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("a disk that can be filled needs root to mount it; the limit on file sizes is tested in its place")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"a disk that can be filled cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, *, leave_bytes: int) -> Path:
    """Take all of the disk but `leave_bytes`."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - leave_bytes)
    return filler


def bring(workspace: Path, disk: Path, *, without: tuple[str, ...] = ()) -> Path:
    return Path(shutil.copytree(workspace, disk / "out", ignore=shutil.ignore_patterns(*without)))


@pytest.fixture(scope="session")
def roomy(place: scene.Place, finished: Path, once: Once) -> Path:
    """What training the wide head gives when there is room."""

    def train(folder: Path) -> None:
        shutil.copytree(finished, folder, dirs_exist_ok=True)
        assert scene.unchoke("train", *place.fit_args(folder, *WIDE_HEAD)).code == 0

    return once("faults-roomy", train)


def test_while_shards_are_written(place: scene.Place, finished: Path, disk: Path) -> None:
    workspace = bring(finished, disk, without=("*.npz", "*.done", "experiments"))
    filler = fill(disk, leave_bytes=96 * 2**10)
    ended = scene.unchoke("train", *place.fit_args(workspace))
    assert ended.code == 3, ended.stderr
    assert ended.says_error("disk-full")
    done = scene.done_files(workspace)
    assert 0 < len(done) < 15
    assert scene.strays(workspace) == []
    assert set(scene.shards(workspace).items()) <= set(scene.shards(finished).items()), "a shard is half-written"

    filler.unlink()
    assert scene.unchoke("train", *place.fit_args(workspace)).code == 0
    assert {name: scene.done_files(workspace).get(name) for name in done} == done
    assert scene.outcome(workspace) == scene.outcome(finished)


def test_while_a_checkpoint_is_written(place: scene.Place, finished: Path, disk: Path, roomy: Path) -> None:
    workspace = bring(finished, disk)
    filler = fill(disk, leave_bytes=120 * 2**10)
    ended = scene.unchoke("train", *place.fit_args(workspace, *WIDE_HEAD))
    assert ended.code == 3, ended.stderr
    assert ended.says_error("disk-full", "last.pt")
    assert not list((workspace / "experiments" / "exp_2").rglob("*.pt"))
    assert scene.strays(workspace) == []

    filler.unlink()
    assert scene.unchoke("train", *place.fit_args(workspace, *WIDE_HEAD)).code == 0
    assert scene.outcome(workspace, run="exp_2") == scene.outcome(roomy, run="exp_2")


@pytest.mark.parametrize("leave_kib", [0, *(pytest.param(kib, marks=pytest.mark.campaign) for kib in (24, 48))])
def test_while_the_database_is_written(place: scene.Place, finished: Path, disk: Path, leave_kib: int) -> None:
    workspace = bring(finished, disk, without=("experiments",))
    filler = fill(disk, leave_bytes=leave_kib * 2**10)
    ended = scene.unchoke("train", *place.fit_args(workspace))
    assert ended.code == 3, ended.stderr
    assert ended.says_error("disk-full")

    filler.unlink()
    assert scene.unchoke("train", *place.fit_args(workspace)).code == 0
    assert scene.outcome(workspace) == scene.outcome(finished)
    assert scene.strays(workspace) == []


def test_under_a_limit_on_file_sizes_no_shard(place: scene.Place, copied: Path) -> None:
    before = scene.shards(copied)
    args = place.fit_args(copied, "--views", "12")
    ended = scene.unchoke("train", *args, limits={resource.RLIMIT_FSIZE: 40 * 2**10})
    assert ended.code == 3, ended.stderr
    assert ended.says_error("file-size-limit", "img_", "41.0 kB", "ulimit -f unlimited")
    assert scene.shards(copied) == before
    assert scene.strays(copied) == []
    assert scene.unchoke("train", *args).code == 0
    assert len(scene.shards(copied)) == 2 * len(before)


@pytest.mark.parametrize(
    ("limit_kib", "what", "code"), [(16, "experiments.db", "database-refused"), (100, "last.pt", "file-size-limit")]
)
def test_under_a_limit_on_file_sizes_no_record(
    place: scene.Place, copied: Path, roomy: Path, limit_kib: int, what: str, code: str
) -> None:
    if what == "experiments.db":
        (copied / "experiments" / "experiments.db").unlink()
    ended = scene.unchoke("train", *place.fit_args(copied, *WIDE_HEAD), limits={resource.RLIMIT_FSIZE: limit_kib * 2**10})
    assert ended.code == 3, ended.stderr
    assert ended.says_error(code, what)
    assert scene.strays(copied) == []
    assert scene.unchoke("train", *place.fit_args(copied, *WIDE_HEAD)).code == 0
    assert scene.outcome(copied, run="exp_2") == scene.outcome(roomy, run="exp_2")
