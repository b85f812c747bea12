"""Files and folders of a finished workspace that are damaged, edited, lost, misplaced or may not be written: told in words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scene

pytestmark = pytest.mark.system


def flip(file: Path, *, num: int = 20, at: float = 0.5) -> None:
    data = bytearray(file.read_bytes())
    start = int(len(data) * at)
    data[start : start + num] = bytes(255 - value for value in data[start : start + num])
    file.write_bytes(data)


def test_flipped_weights_are_refused_and_finished_again_to_the_same_bytes(place: scene.Place, copied: Path) -> None:
    head = copied / "experiments" / "exp_1" / "checkpoints" / "best_head.pt"
    before = head.read_bytes()
    flip(head)
    for command in (["predict", "exp_1", str(place.photos)], ["evaluate", "exp_1"]):
        assert scene.unchoke(*command, "--out", str(copied)).says_error("best_head.pt is damaged")
    again = scene.unchoke("fit", *place.fit_args(copied))
    assert again.code == 0
    assert "best_head.pt is damaged" in again.stderr
    assert head.read_bytes() == before


def test_flipped_weights_of_a_run_without_seals_are_refused_too(place: scene.Place, copied: Path) -> None:
    run = copied / "experiments" / "exp_1"
    (run / "SHA256SUMS").unlink()
    flip(run / "checkpoints" / "best_head.pt")
    assert scene.unchoke("predict", "exp_1", str(place.photos), "--out", str(copied)).says_error("best_head.pt is damaged")


def test_an_edited_record_is_told_and_written_again(place: scene.Place, copied: Path) -> None:
    file = copied / "experiments" / "exp_1" / "record.json"
    record = json.loads(file.read_text())
    record["metrics"]["test"]["accuracy"]["value"] = 0.999
    file.write_text(json.dumps(record))
    for command in ("runs show exp_1", "report exp_1", "evaluate exp_1"):
        assert scene.unchoke(*command.split(), "--out", str(copied)).says_error("record.json is damaged")
    again = scene.unchoke("fit", *place.fit_args(copied))
    assert "record.json is damaged" in again.stderr
    assert json.loads(file.read_text())["metrics"]["test"]["accuracy"]["value"] != 0.999
    assert scene.unchoke("runs", "show", "exp_1", "--out", str(copied)).code == 0


def test_exported_features_with_eight_bytes_overwritten_are_refused(copied: Path, tmp_path: Path) -> None:
    exported = tmp_path / "exported"
    assert scene.unchoke("runs", "export", "exp_1", str(exported), "--out", str(copied)).code == 0
    assert scene.unchoke("evaluate", str(exported)).code == 0
    data = bytearray((exported / "features.npz").read_bytes())
    data[1000:1008] = np.full(4, 60_000, np.float16).tobytes()
    (exported / "features.npz").write_bytes(data)
    assert scene.unchoke("evaluate", str(exported)).says_error("features.npz is damaged")
    (exported / "SHA256SUMS").unlink()
    assert scene.unchoke("evaluate", str(exported)).says_error("features.npz is damaged")


def test_half_a_manifest_is_refused_and_a_lost_one_is_told(place: scene.Place, copied: Path) -> None:
    manifest = copied / "manifest.csv"
    text = manifest.read_text()
    manifest.write_text(text[: len(text) // 2])
    assert scene.unchoke("fit", *place.fit_args(copied)).says_error("manifest.csv is damaged", "splits are made anew")
    manifest.unlink()
    again = scene.unchoke("fit", *place.fit_args(copied))
    assert again.code == 0
    assert "manifest.csv is gone" in again.stderr


def test_engines_may_be_deleted_or_damaged_and_are_made_again(place: scene.Place, tmp_path: Path) -> None:
    args = place.fit_args(tmp_path / "out", "--cut", "end", engine="openvino")
    assert scene.unchoke("fit", *args).code == 0
    ask = ["predict", "exp_1", str(place.photos / "apple"), "--out", str(tmp_path / "out"), "--json"]
    wanted = scene.unchoke(*ask).result
    engines = tmp_path / "out" / "engines"
    weights = next(engines.glob("*/model.bin"))
    flip(weights, num=20_000, at=0.2)
    found = scene.unchoke(*ask)
    assert "model.bin is damaged" in found.stdout
    assert found.result == wanted
    (engines / "choice.json").write_text("[" * 100_000)
    told = scene.unchoke("fit", *args)
    assert told.code == 0
    assert "choice.json is not used" in told.stderr
    shutil.rmtree(engines)
    assert scene.unchoke("fit", *args).code == 0
    assert scene.unchoke(*ask).result == wanted


@pytest.mark.parametrize("name", ["features", "experiments", "engines"])
def test_a_file_where_a_folder_belongs_is_told(place: scene.Place, copied: Path, name: str) -> None:
    shutil.rmtree(copied / name, ignore_errors=True)
    (copied / name).write_text("a file")
    for command in (["fit", *place.fit_args(copied)], ["runs", "list", "--out", str(copied)]):
        ended = scene.unchoke(*command)
        assert ended.code == 0 or ended.says_error(f"{name} is a file")


@pytest.mark.parametrize(
    "name", ["manifest.csv", "features/jobs_queue.csv", "experiments/experiments.db", "unchoke.toml", ".lock"]
)
def test_a_folder_where_a_file_belongs_is_told(place: scene.Place, copied: Path, name: str) -> None:
    (copied / name).unlink(missing_ok=True)
    (copied / name).mkdir()
    for command in (["fit", *place.fit_args(copied)], ["runs", "list", "--out", str(copied)]):
        ended = scene.unchoke(*command)
        assert ended.code == 0 or (ended.code in (1, 2, 3) and ended.says_error(Path(name).name))


def test_a_file_given_as_a_workspace_is_told(place: scene.Place, tmp_path: Path) -> None:
    (tmp_path / "FILE").write_text("a file")
    for command in ("check", "fit"):
        assert scene.unchoke(command, str(place.photos), "--out", str(tmp_path / "FILE")).says_error("FILE is a file")


def test_a_lost_memory_of_the_data_is_told_apart_from_a_new_workspace(copied: Path, tmp_path: Path) -> None:
    (copied / "unchoke.toml").unlink()
    assert scene.unchoke("fit", "--out", str(copied)).says_error("unchoke.toml", "exp_1", "is gone")
    assert scene.unchoke("fit", "--out", str(tmp_path / "new")).says_error("has not seen any yet")


def test_a_working_folder_that_is_gone_is_told(place: scene.Place, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    unchoke = Path(sys.executable).with_name("unchoke")
    line = f"cd '{tmp_path / 'gone'}' && rmdir '{tmp_path / 'gone'}' && '{unchoke}' check '{place.photos}'"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no longer exists" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="mounts in a namespace of their own")
def test_reading_commands_work_where_nothing_may_be_written(place: scene.Place, copied: Path, tmp_path: Path) -> None:
    unchoke, mounted, said = Path(sys.executable).with_name("unchoke"), tmp_path / "mounted", tmp_path / "said"
    mounted.mkdir()
    picture = next(place.photos.rglob("*.jpg"))
    asked = ["runs list", "runs show exp_1", "runs best", "report exp_1", "evaluate exp_1", f"predict exp_1 '{picture}'"]
    lines = [f"mount --bind '{copied}' '{mounted}' && mount -o remount,ro,bind '{mounted}' || exit 99"]
    lines += [f"'{unchoke}' {words} --out '{mounted}' 2>> '{said}' || exit {number}" for number, words in enumerate(asked, 10)]
    lines += [f"'{unchoke}' fit --out '{mounted}' 2>> '{said}'; [ $? = 3 ] || exit 30"]
    ended = subprocess.run(["unshare", "-m", "bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    if ended.returncode in (1, 99) and not said.exists():
        pytest.skip("no namespace of mounts here")
    assert ended.returncode == 0, said.read_text() + ended.stderr
    assert "Read-only file system" in said.read_text()
    assert os.access(copied, os.W_OK)
