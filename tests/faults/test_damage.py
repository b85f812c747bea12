"""Files and folders of a finished workspace that are damaged, edited, lost, misplaced or may not be written: told in words."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scene


def flip(file: Path, *, num: int = 20, at: float = 0.5) -> None:
    data = bytearray(file.read_bytes())
    start = int(len(data) * at)
    data[start : start + num] = bytes(255 - value for value in data[start : start + num])
    file.write_bytes(data)


def test_flipped_weights_are_refused_and_made_again(place: scene.Place, copied: Path) -> None:
    head = copied / "experiments" / "exp_1" / "checkpoints" / "best_head.pt"
    before = head.read_bytes()
    flip(head)
    for command in (["predict", "exp_1", str(place.photos)], ["evaluate", "exp_1"]):
        assert scene.unchoke(*command, "--out", str(copied)).says_error("damaged-file", "best_head.pt")
    again = scene.unchoke("fit", *place.fit_args(copied))
    assert again.code == 0
    assert again.warns_of("best_head.pt")
    assert head.read_bytes() == before


def test_flipped_weights_without_checksums(place: scene.Place, copied: Path) -> None:
    run = copied / "experiments" / "exp_1"
    (run / "SHA256SUMS").unlink()
    flip(run / "checkpoints" / "best_head.pt")
    assert scene.unchoke("predict", "exp_1", str(place.photos), "--out", str(copied)).says_error("damaged-file", "best_head.pt")


def test_edited_record_is_written_again(place: scene.Place, copied: Path) -> None:
    file = copied / "experiments" / "exp_1" / "record.json"
    record = json.loads(file.read_text())
    record["metrics"]["test"]["accuracy"]["value"] = 0.999
    file.write_text(json.dumps(record))
    for command in ("runs show exp_1", "report exp_1", "evaluate exp_1"):
        assert scene.unchoke(*command.split(), "--out", str(copied)).says_error("damaged-file", "record.json")
    again = scene.unchoke("fit", *place.fit_args(copied))
    assert again.warns_of("record.json")
    assert json.loads(file.read_text())["metrics"]["test"]["accuracy"]["value"] != 0.999
    assert scene.unchoke("runs", "show", "exp_1", "--out", str(copied)).code == 0


def test_eight_bytes_of_exported_features(copied: Path, tmp_path: Path) -> None:
    exported = tmp_path / "exported"
    assert scene.unchoke("runs", "export", "exp_1", str(exported), "--out", str(copied)).code == 0
    assert scene.unchoke("evaluate", str(exported)).code == 0
    data = bytearray((exported / "features.npz").read_bytes())
    data[1000:1008] = np.full(4, 60_000, np.float16).tobytes()
    (exported / "features.npz").write_bytes(data)
    assert scene.unchoke("evaluate", str(exported)).says_error("damaged-file", "features.npz")
    (exported / "SHA256SUMS").unlink()
    assert scene.unchoke("evaluate", str(exported)).says_error("damaged-file", "features.npz")


def test_half_a_manifest_and_a_lost_one(place: scene.Place, copied: Path) -> None:
    manifest = copied / "manifest.csv"
    text = manifest.read_text()
    manifest.write_text(text[: len(text) // 2])
    assert scene.unchoke("fit", *place.fit_args(copied)).says_error("damaged-file", "manifest.csv")
    manifest.unlink()
    again = scene.unchoke("fit", *place.fit_args(copied))
    assert again.code == 0
    assert again.warns_of("manifest.csv")


def test_lost_and_damaged_engines_are_made_again(place: scene.Place, tmp_path: Path) -> None:
    args = place.fit_args(tmp_path / "out", "--cut", "end", engine="openvino")
    assert scene.unchoke("fit", *args).code == 0
    ask = ["predict", "exp_1", str(place.photos / "apple"), "--out", str(tmp_path / "out"), "--json"]
    wanted = scene.unchoke(*ask).result
    engines = tmp_path / "out" / "engines"
    weights = next(engines.glob("*/model.bin"))
    flip(weights, num=20_000, at=0.2)
    found = scene.unchoke(*ask)
    assert "model.bin" in found.stdout
    assert found.result == wanted
    (engines / "choice.json").write_text("[" * 100_000)
    told = scene.unchoke("fit", *args)
    assert told.code == 0
    assert told.warns_of("choice.json")
    shutil.rmtree(engines)
    assert scene.unchoke("fit", *args).code == 0
    assert scene.unchoke(*ask).result == wanted


@pytest.mark.parametrize("name", ["features", "experiments", "engines"])
def test_file_where_a_folder_belongs(place: scene.Place, copied: Path, name: str) -> None:
    shutil.rmtree(copied / name, ignore_errors=True)
    (copied / name).write_text("a file")
    for command in (["fit", *place.fit_args(copied)], ["runs", "list", "--out", str(copied)]):
        ended = scene.unchoke(*command)
        assert ended.code == 0 or ended.says_error("place-taken", name)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *((name, "place-taken") for name in ("manifest.csv", "features/jobs_queue.csv", "unchoke.toml", ".lock")),
        ("experiments/experiments.db", "database-refused"),
    ],
)
def test_folder_where_a_file_belongs(place: scene.Place, copied: Path, name: str, code: str) -> None:
    (copied / name).unlink(missing_ok=True)
    (copied / name).mkdir()
    for command in (["fit", *place.fit_args(copied)], ["runs", "list", "--out", str(copied)]):
        ended = scene.unchoke(*command)
        assert ended.code == 0 or (ended.code in (1, 2, 3) and ended.says_error(code, Path(name).name))


def test_file_given_as_a_workspace(place: scene.Place, tmp_path: Path) -> None:
    (tmp_path / "FILE").write_text("a file")
    for command in ("check", "fit"):
        assert scene.unchoke(command, str(place.photos), "--out", str(tmp_path / "FILE")).says_error("place-taken", "FILE")


def test_lost_settings_and_a_new_workspace(copied: Path, tmp_path: Path) -> None:
    (copied / "unchoke.toml").unlink()
    assert scene.unchoke("fit", "--out", str(copied)).says_error("no-data-given", "unchoke.toml", "exp_1")
    new = scene.unchoke("fit", "--out", str(tmp_path / "new"))
    assert new.says_error("no-data-given") and "unchoke.toml" not in new.stderr


CLONE_NEWNS = 0x20000
NO_NAMESPACE = 99


def run_on_mount(workspace: Path, mounted: Path, commands: list[list[str]], said: Path) -> None:
    """Run `commands` where `workspace` is mounted to be read only; their exit codes and streams go to `said`."""
    mounts = (["--make-rprivate", "/"], ["--bind", workspace, mounted], ["-o", "remount,ro,bind", mounted])
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) or any(subprocess.run(["mount", *words]).returncode for words in mounts):
        sys.exit(NO_NAMESPACE)
    codes = []
    for number, words in enumerate(commands):
        (said / str(number)).mkdir()
        if (child := os.fork()) == 0:
            code: object = 70
            try:
                scene.run_command(words, str(said / str(number)), {})
            except SystemExit as stop:
                code = stop.code or 0
            finally:
                os._exit(int(str(code)))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    (said / "codes.json").write_text(json.dumps(codes))


@pytest.mark.skipif(sys.platform != "linux", reason="mounts in a namespace of their own")
def test_reading_commands_on_a_read_only_mount(place: scene.Place, copied: Path, tmp_path: Path) -> None:
    mounted, said = tmp_path / "mounted", tmp_path / "said"
    mounted.mkdir()
    said.mkdir()
    picture = str(next(place.photos.rglob("*.jpg")))
    asked = [line.split() for line in ("runs list", "runs show exp_1", "runs best", "report exp_1", "evaluate exp_1")]
    commands = [[*words, "--out", str(mounted)] for words in (*asked, ["predict", "exp_1", picture], ["fit"])]
    process = scene.fork(run_on_mount, copied, mounted, commands, said)
    process.join(scene.PATIENCE_S)
    if process.exitcode == NO_NAMESPACE:
        pytest.skip("no namespace of mounts here")
    assert process.exitcode == 0
    errors = [(said / str(number) / "stderr").read_text() for number in range(len(commands))]
    assert json.loads((said / "codes.json").read_text()) == [0] * 6 + [3], errors
    assert "Read-only file system" in errors[-1]
    assert os.access(copied, os.W_OK)
