"""`unchoke segment predict` as it is typed: exit codes, JSON, and what a person reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Type


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import mask_run

    return mask_run.make_run(tmp_path_factory.mktemp("runs") / "exp_1")


def test_mask_is_drawn_once_and_a_broken_scene_named(unchoke: Type, run: Path, tmp_path: Path) -> None:
    import mask_run

    mask_run.make_scene(tmp_path / "scenes" / "good.tif", height=70, width=70)
    command = ("segment", "predict", run, tmp_path / "scenes", "--to", tmp_path / "masks", "--no-probabilities")
    first = unchoke(*command, "--json")
    assert first.code == 0, first.stdout
    (mask,) = first.result["masks"]
    assert (mask["scene"], mask["skipped"], mask["pixels"]) == ("good", False, 4900)
    assert Path(mask["classes"]).is_file()
    assert first.result["patches"] == 4
    again = unchoke(*command)
    assert again.code == 0
    assert "gdalinfo" in again.stdout
    (tmp_path / "scenes" / "bad.tif").write_bytes(b"II*\0 nothing like a scene")
    broken = unchoke(*command, "--json")
    assert (broken.code, broken.last["ok"]) == (1, False)
    assert [mask["skipped"] for mask in broken.last["result"]["masks"]] == [True]
    assert [Path(finding["path"]).name for finding in broken.last["result"]["findings"]] == ["bad.tif"]


def test_wrong_usage_exits_with_2(unchoke: Type, run: Path, tmp_path: Path) -> None:
    (tmp_path / "exp_9").mkdir()
    (tmp_path / "exp_9" / "record.json").write_text(json.dumps({"run": "exp_9", "task": {"kind": "regression"}}))
    other = unchoke("segment", "predict", tmp_path / "exp_9", tmp_path, "--to", tmp_path / "masks")
    assert (other.code, "[not-a-mask-run]" in other.stderr) == (2, True)
    nowhere = unchoke("segment", "predict", run, tmp_path / "no such folder", "--to", tmp_path / "masks")
    assert nowhere.code == 2
    size = unchoke("segment", "predict", run, tmp_path, "--to", tmp_path / "masks", "--memory", "much")
    assert (size.code, "much" in size.stderr) == (2, True)
