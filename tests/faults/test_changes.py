"""Data that changes between runs, or during one: only what changed is done again, and nothing old is mixed in."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
import scene


@pytest.fixture
def photos(place: scene.Place, tmp_path: Path) -> Path:
    return Path(shutil.copytree(place.photos, tmp_path / "photos"))


@pytest.fixture
def workspace(place: scene.Place, photos: Path, tmp_path: Path) -> Path:
    """Finished on its own copy of the photos."""
    ended = scene.unchoke("fit", *place.fit_args(tmp_path / "out", photos=photos))
    assert ended.code == 0, ended.stderr
    return tmp_path / "out"


def test_photos_come_and_go(place: scene.Place, photos: Path, workspace: Path) -> None:
    args = place.fit_args(workspace, photos=photos)

    before, old_shards = scene.done_files(workspace), scene.shards(workspace)
    scene.make_photo(photos / "apple" / "a_011.jpg", 0, 1011)
    assert scene.unchoke("fit", *args).code == 0
    after = scene.done_files(workspace)
    assert len(set(before) - set(after)) == len(set(after) - set(before)) == 1, "an edited photo is one job"
    changed = [name for name, sha in scene.shards(workspace).items() if old_shards[name] != sha]
    assert len(changed) == 1

    before, old_shards = after, scene.shards(workspace)
    for index in range(3):
        scene.make_photo(photos / "birch" / f"added_{index}.jpg", 1, 2000 + index)
    assert scene.unchoke("fit", *args).code == 0
    after = scene.done_files(workspace)
    assert {name: after.get(name) for name in before} == before, "an old job was touched"
    assert len(after) == len(before) + 1
    assert {name: scene.shards(workspace)[name] for name in old_shards} == old_shards

    (photos / "cloud" / "c_005.jpg").write_bytes(b"no longer a picture")
    ended = scene.unchoke("fit", *args)
    assert ended.code == 0, ended.stderr
    assert "1 file set aside" in ended.stderr
    assert "c_005.jpg" in (workspace / "quarantine.csv").read_text()
    assert "c_005.jpg" not in (workspace / "experiments" / "exp_4" / "predictions.csv").read_text()

    for index in range(10):
        (photos / "cloud" / f"c_{index:03d}.jpg").write_bytes(b"no longer a picture")
    ended = scene.unchoke("fit", *args)
    assert ended.code == 1
    assert ended.says_error("10", "c_000.jpg")
    assert scene.unchoke("fit", *args, "--max-failures", "0.2").code == 0


@pytest.mark.parametrize("option", [("--views", "1"), ("--precision", "f32")])
def test_another_way_of_making_features_touches_nothing_old(place: scene.Place, copied: Path, option: tuple[str, str]) -> None:
    before, old_shards = scene.done_files(copied), scene.shards(copied)
    ended = scene.unchoke("fit", *place.fit_args(copied, *option))
    assert ended.code == 0, ended.stderr
    after, shards = scene.done_files(copied), scene.shards(copied)
    assert {name: after[name] for name in before} == before
    assert {name: shards[name] for name in old_shards} == old_shards
    assert len(after) == 2 * len(before)
    assert len({name.split("/")[0] for name in shards}) == 2


def test_a_photo_that_vanishes_during_the_run_is_named_and_taken_back_when_it_returns(
    place: scene.Place, photos: Path, tmp_path: Path
) -> None:
    args = place.fit_args(tmp_path / "out", photos=photos)
    lost = photos / "cloud" / "c_039.jpg"
    running = scene.start("fit", *args)
    running.wait_until(lambda: "\nengine  " in running.stderr())
    running.send(signal.SIGSTOP)
    lost.rename(tmp_path / "kept.jpg")
    running.send(signal.SIGCONT)
    ended = running.end()
    assert ended.code == 0, ended.stderr
    assert "c_039.jpg" in (tmp_path / "out" / "quarantine.csv").read_text()

    before = scene.done_files(tmp_path / "out")
    (tmp_path / "kept.jpg").rename(lost)
    ended = scene.unchoke("fit", *args)
    assert ended.code == 0, ended.stderr
    assert not (tmp_path / "out" / "quarantine.csv").exists()
    assert len(set(before) - set(scene.done_files(tmp_path / "out"))) == 1


def test_too_many_losses_stop_the_run_also_the_second_time(place: scene.Place, photos: Path, tmp_path: Path) -> None:
    args = place.fit_args(tmp_path / "out", photos=photos)
    running = scene.start("fit", *args)
    running.wait_until(lambda: "\nengine  " in running.stderr())
    running.send(signal.SIGSTOP)
    for index in range(12):
        scene.make_photo(photos / "birch" / f"b_{index:03d}.jpg", 1, 5000 + index)
    running.send(signal.SIGCONT)
    ended = running.end()
    assert ended.code == 1
    assert ended.says_error("could not be read", "changed", "--max-failures")
    assert scene.unchoke("fit", *args).code == 0, "the photos are sound now"
    assert not (tmp_path / "out" / "quarantine.csv").exists()
