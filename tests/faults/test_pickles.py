"""A pickle hidden where weights, features or records are expected is refused, and what it carries is never run."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scene

from unchoke.core.checksums import CHECKSUMS
from unchoke.core.fingerprint import digest_file


class Payload:
    """Unpickled, it creates a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self._file}",))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that exists once a payload was run."""
    return tmp_path / "run-by-pickle"


def save_torch(payload: Payload, file: Path) -> None:
    import torch

    torch.save({"format": 1, "weight": torch.zeros(2), "extra": payload}, file)


def save_bare(payload: Payload, file: Path) -> None:
    file.write_bytes(pickle.dumps({"weight": payload}))


def save_npy(payload: Payload) -> bytes:
    array = np.empty(8, dtype=object)
    array[:] = payload
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def test_the_payload_would_work(mark: Path, tmp_path: Path) -> None:
    import torch

    save_torch(Payload(mark), tmp_path / "evil.pt")
    torch.load(tmp_path / "evil.pt", weights_only=False)
    assert mark.exists()


@pytest.mark.parametrize("name", ["evil.pt", "bare.pt", "evil.safetensors"])
def test_in_a_weights_file(place: scene.Place, checked: Path, mark: Path, tmp_path: Path, name: str) -> None:
    (save_bare if name == "bare.pt" else save_torch)(Payload(mark), tmp_path / name)
    ended = scene.unchoke("fit", *place.fit_args(checked, "--weights", str(tmp_path / name)))
    assert ended.code == 2, ended.stderr
    assert ended.says_error("bad-weights", name)
    assert not mark.exists()


@pytest.mark.parametrize("save", [save_torch, save_bare])
def test_in_the_head_of_a_run(place: scene.Place, copied: Path, mark: Path, save: Any) -> None:
    """Whoever plants one takes its checksum away, too."""
    (copied / "experiments" / "exp_1" / CHECKSUMS).unlink()
    save(Payload(mark), copied / "experiments" / "exp_1" / "checkpoints" / "best_head.pt")
    for command in (["evaluate", "exp_1"], ["predict", "exp_1", str(place.photos)]):
        ended = scene.unchoke(*command, "--out", str(copied))
        assert ended.code == 1, ended.stderr
        assert ended.says_error("bad-weights", "best_head.pt")
    assert not mark.exists()


def test_in_a_checkpoint_to_go_on_from(place: scene.Place, finished: Path, copied: Path, mark: Path) -> None:
    (copied / "experiments" / "exp_1" / "record.json").unlink()
    save_torch(Payload(mark), copied / "experiments" / "exp_1" / "checkpoints" / "last.pt")
    ended = scene.unchoke("fit", *place.fit_args(copied))
    assert "Traceback" not in ended.stderr
    assert "last.pt" in ended.stderr
    assert not mark.exists()


@pytest.mark.parametrize("member", ["global_pool.npy", "sample_id.npy"])
def test_in_a_shard_with_a_valid_checksum(place: scene.Place, copied: Path, mark: Path, member: str) -> None:
    shard = min((copied / "features").glob("*/*.npz"))
    with zipfile.ZipFile(shard) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(shard, "w") as archive:
        for name, data in {**members, member: save_npy(Payload(mark))}.items():
            archive.writestr(name, data)
    vouch_for(shard, copied)
    ended = scene.unchoke("fit", *place.fit_args(copied, "--epochs", "3"))
    assert "Traceback" not in ended.stderr
    if member == "global_pool.npy":
        assert ended.code == 1
        assert ended.says_error("damaged-shard", shard.name)
    assert not mark.exists()


def vouch_for(shard: Path, workspace: Path) -> None:
    """Make the record of the shard's job agree with its new content."""
    for file in (workspace / "features").glob("job_*.done"):
        record = json.loads(file.read_text())
        if record["output"].endswith(shard.name):
            del record["seal"]
            file.write_text(json.dumps({**record, "sha256": digest_file(shard), "size_bytes": shard.stat().st_size}))
