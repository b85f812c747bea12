"""A real script under the injected watcher, with forked workers: what the detailed hooks say about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.chokes.light_torch import LIGHT_TORCH

import unchoke.chokes.watch

SCRIPT = (
    LIGHT_TORCH
    + """
import os
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
import numpy as np

class Pictures(Dataset):
    def __init__(self, root):
        self.root = root
    def __len__(self):
        return 48
    def __getitem__(self, index):
        path = os.path.join(self.root, f"{index % 8}.jpg")
        assert os.path.exists(path)
        picture = Image.open(path).resize((16, 16))
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255

if __name__ == "__main__":
    loader = DataLoader(Pictures(sys.argv[1]), batch_size=4, num_workers=1, multiprocessing_context="fork")
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    print("done", open is __import__("io").open)
"""
)
HUNTING = (
    LIGHT_TORCH
    + """
from torch import nn

torch.autograd.set_detect_anomaly(True)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
forward = nn.Module.__call__
rested = 0
for _ in range(400):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    rested += nn.Module.__call__ is not forward
torch.autograd.set_detect_anomaly(False)
print("done", rested > 40)
"""
)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The last record of each process, by its role."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("watched")
    for number in range(8):
        Image.new("RGB", (64, 48), (number, 0, 0)).save(folder / f"{number}.jpg")
    return watched(folder, SCRIPT)


def watched(folder: Path, script: str) -> dict[str, dict[str, Any]]:
    (folder / "train.py").write_text(script)
    (folder / "watch").mkdir()
    inject = Path(unchoke.chokes.watch.__file__).parent / "inject"
    parent = {"UNCHOKE_WATCH_DIR": str(folder / "watch"), "UNCHOKE_WATCH_PARENT": str(os.getpid()), "PYTHONPATH": str(inject)}
    run = [sys.executable, str(folder / "train.py"), str(folder)]
    ended = subprocess.run(run, env={**os.environ, **parent}, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "done True\n"
    assert ended.stderr == ""
    found = [json.loads(file.read_text().splitlines()[-1]) for file in (folder / "watch").glob("*.jsonl")]
    return {record["role"]: record for record in found}


def calls(record: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for row in record["calls"] if row["kind"] == kind and row["phase"] == "getitem"]


def test_workers_count_file_system_calls_per_sample(records: dict[str, dict[str, Any]]) -> None:
    line = SCRIPT.splitlines().index("        assert os.path.exists(path)") + 1
    (row,) = calls(records["loader"], "stat")
    assert (row["count"], row["distinct"], row["line"], row["function"]) == (48, 8, line, "Pictures.__getitem__")
    assert calls(records["loader"], "open")[0]["count"] == 48


def test_workers_tell_pixels_decoded_from_pixels_used(records: dict[str, dict[str, Any]]) -> None:
    (decoded,), (resized,) = calls(records["loader"], "decode"), calls(records["loader"], "resize")
    assert (decoded["amount"], decoded["distinct"]) == (48 * 64 * 48, 8)
    assert resized["amount"] == 48 * 16 * 16


def test_the_main_process_knows_its_network_and_its_samples(records: dict[str, dict[str, Any]]) -> None:
    main = records["main"]
    assert [row["name"] for row in main["modules"] if row["depth"] == 0] == ["Sequential"]
    assert main["samples"]["total"] > 0
    assert records["loader"]["modules"] == []
    assert not main["notes"]


def test_hooks_rest_where_torch_writes_down_their_frames(tmp_path: Path) -> None:
    main = watched(tmp_path, HUNTING)["main"]
    line = HUNTING.splitlines().index("torch.autograd.set_detect_anomaly(True)") + 1
    assert main["facts"]["anomaly"] is True
    assert main["facts"]["anomaly_at"] == [str(tmp_path / "train.py"), line], "not the line that switches it off"
