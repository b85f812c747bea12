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


def test_photos_come_and_go(place: scene.Place, photos: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "out"
    args = place.fit_args(workspace, photos=photos)
    assert scene.unchoke("fit", *args).code == 0

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
    assert "c_005.jpg" in (workspace / "quarantine.csv").read_text()
    assert "c_005.jpg" not in (workspace / "experiments" / "exp_4" / "predictions.csv").read_text()

    for index in range(10):
        (photos / "cloud" / f"c_{index:03d}.jpg").write_bytes(b"no longer a picture")
    ended = scene.unchoke("fit", *args)
    assert ended.code == 1
    assert ended.says_error("unsound-data", "10", "c_000.jpg")
    assert scene.unchoke("fit", *args, "--max-failures", "0.2").code == 0


def test_other_features_touch_nothing_old(place: scene.Place, copied: Path) -> None:
    once = len(scene.done_files(copied))
    for times, option in enumerate((("--views", "1"), ("--precision", "f32")), 2):
        before, old_shards = scene.done_files(copied), scene.shards(copied)
        ended = scene.unchoke("fit", *place.fit_args(copied, *option))
        assert ended.code == 0, ended.stderr
        after, shards = scene.done_files(copied), scene.shards(copied)
        assert {name: after[name] for name in before} == before
        assert {name: shards[name] for name in old_shards} == old_shards
        assert len(after) == times * once
        assert len({name.split("/")[0] for name in shards}) == times


def test_photo_that_vanishes_and_returns(place: scene.Place, photos: Path, tmp_path: Path) -> None:
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


def test_too_many_photos_change_during_the_run(place: scene.Place, photos: Path, tmp_path: Path) -> None:
    args = place.fit_args(tmp_path / "out", photos=photos)
    running = scene.start("fit", *args)
    running.wait_until(lambda: "\nengine  " in running.stderr())
    running.send(signal.SIGSTOP)
    for index in range(12):
        scene.make_photo(photos / "birch" / f"b_{index:03d}.jpg", 1, 5000 + index)
    running.send(signal.SIGCONT)
    ended = running.end()
    assert ended.code == 1
    assert ended.says_error("too-many-failed", "b_000.jpg")
    assert scene.unchoke("fit", *args).code == 0, "the photos are sound now"
    assert not (tmp_path / "out" / "quarantine.csv").exists()
