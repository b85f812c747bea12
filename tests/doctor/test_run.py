"""`lint --run`: what a real run of a notebook says of findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.doctor.conftest import Typed, book_of

MOUNT = "from google.colab import drive\ndrive.mount('/content/drive')"
DATA = """\
import os
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader

class Shots(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        names = sorted(os.listdir("shots"))
        return torch.full((16,), len(names[number]) / 10), number % 2

loader = DataLoader(Shots(), batch_size=8, shuffle=True)
held = DataLoader(Shots(), batch_size=64)"""
TRAIN = """\
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(30):
    net.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    for x, y in held:
        hits = (net(x).argmax(1) == y).sum().item()
    print(epoch, hits)
torch.save(net.state_dict(), "net.pt")"""


def test_run_judges_every_finding(doctor: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shots").mkdir()
    for number in range(2_000):
        (tmp_path / "shots" / f"{number:04}.txt").touch()
    Path("shots.ipynb").write_text(book_of(MOUNT, DATA, TRAIN))
    answer = doctor("lint", "shots.ipynb", "--run", "--json")
    found = {one["code"]: one for one in answer.last["result"]["findings"]}
    scan = found["per-sample-scan"]
    assert (scan["status"], scan["basis"], scan["cell"], scan["line"]) == ("confirmed", "measured", 2, 11)
    assert 0.4 < scan["evidence"]["share"] < 1
    assert found["no-inference-mode"]["status"] == "refuted"
    assert found["never-on-gpu"]["status"] == "not reached"
    assert {one["path"] for one in found.values()} == {"shots.ipynb"}
    assert "stand-in: drive.mount does nothing" in answer.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shots", "shots.ipynb"]


def test_run_that_fails_reaches_nothing(doctor: Typed, tmp_path: Path) -> None:
    path = tmp_path / "broken.ipynb"
    path.write_text(book_of("raise OSError('no camera')", DATA, "undefined_name\n" + TRAIN))
    answer = doctor("lint", path, "--run", "--json")
    findings = answer.last["result"]["findings"]
    assert findings
    assert {one["status"] for one in findings} == {"not reached"}
    assert "no camera" in json.dumps(findings) or "undefined_name" in json.dumps(findings)
