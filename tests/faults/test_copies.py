"""A workspace that was copied, and shards that were damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scene


def test_copy_works_without_the_original(place: scene.Place, finished: Path, copied: Path, tmp_path: Path) -> None:
    there = Path(shutil.copytree(copied, tmp_path / "somewhere" / "else"))
    shutil.rmtree(copied)
    before = scene.done_files(there)
    ended = scene.unchoke("fit", *place.fit_args(there), "--json")
    assert ended.code == 0, ended.stdout
    assert (ended.result["result"]["run"], ended.result["result"]["already_done"]) == ("exp_1", True)
    assert set(scene.done_files(there)) == set(before)
    assert scene.outcome(there) == scene.outcome(finished)

    evaluated = scene.unchoke("evaluate", "exp_1", "--out", str(there), "--json")
    assert evaluated.code == 0, evaluated.stderr
    assert evaluated.result["result"]["metrics"]["test"]["accuracy"] > 0.8
    predicted = scene.unchoke("predict", "latest", str(place.photos / "apple"), "--out", str(there), "--json")
    assert predicted.code == 0, predicted.stderr
    assert len(predicted.result["result"]["predictions"]) == scene.PER_CLASS
    (there / "experiments" / "exp_1" / "report.html").unlink()
    assert scene.unchoke("report", "1", "--out", str(there)).code == 0
    assert (there / "experiments" / "exp_1" / "report.html").exists()
    assert not copied.exists()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flip_one_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def shard_of_a_judged_photo(workspace: Path) -> Path:
    """`evaluate` reads the features of photos that are scored, and no others."""
    judged = pd.read_csv(workspace / "experiments" / "exp_1" / "predictions.csv")
    wanted = judged.loc[judged["split"] == "test", "sample_id"].iloc[0]
    shards = sorted((workspace / "features").glob("*/*.npz"))
    return next(shard for shard in shards if wanted in np.load(shard)["sample_id"].tolist())


@pytest.mark.parametrize("harm", [truncate, flip_one_bit, Path.unlink])
def test_damaged_shard_is_made_anew(place: scene.Place, finished: Path, copied: Path, harm: Callable[[Path], None]) -> None:
    shard = shard_of_a_judged_photo(copied)
    before = scene.done_files(copied)
    harm(shard)
    evaluated = scene.unchoke("evaluate", "--out", str(copied))
    assert evaluated.code == 1, "figures from damaged features"
    assert evaluated.says_error("features-gone")

    ended = scene.unchoke("fit", *place.fit_args(copied))
    assert ended.code == 0, ended.stderr
    warnings = [line for line in ended.stderr.splitlines() if line.startswith("warning") and ".npz" in line]
    assert len(warnings) == 1
    assert shard.name in warnings[0]
    after = scene.done_files(copied)
    redone = {scene.job_of(name) for name in set(after) - set(before)}
    assert len(after) == 15
    assert redone == {scene.job_of(name) for name in set(before) - set(after)}
    assert len(redone) == 1
    assert scene.outcome(copied) == scene.outcome(finished)
