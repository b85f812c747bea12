"""`profile` on scripts that know nothing of it: workers of both kinds, one that is killed, frameworks."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from errors import refused
from unchoke.chokes.recording import LoaderRecord, Recording
from unchoke.commands.profile_script import ScriptProfile, profile
from unchoke.core.findings import Finding

if TYPE_CHECKING:
    from tests.unit.commands.conftest import Kept

DATASET = """
import os
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        os.path.exists("a.txt")
        time.sleep(0.004)
        return torch.full((3, 4, 4), float(index)), index % 2

def network():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 2))
"""

WORKERS = """
def train(net, optimizer, loader):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def main():
    torch.manual_seed(0)
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    forked = DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2, multiprocessing_context="fork")
    spawned = DataLoader(Numbers(), batch_size=8, num_workers=1, multiprocessing_context="spawn")
    validation = DataLoader(Numbers(), batch_size=12)
    for _ in range(4):
        train(net, optimizer, forked)
    train(net, optimizer, spawned)
    net.eval()
    for x, y in validation:
        with torch.no_grad():
            net(x).argmax(1).tolist()
    os.makedirs("runs", exist_ok=True)
    torch.save(net.state_dict(), "runs/last.pt")
    with open("log.txt", "a") as log:
        log.write("trained\\n")
    print("done")

if __name__ == "__main__":
    main()
"""

KILLED = """
net, x = network(), torch.ones(2, 3, 4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(1000):
    net(x).sum().backward()
    optimizer.step()
    if step == 7:
        records, begun_s = os.environ["UNCHOKE_WATCH_DIR"], time.time()
        while not any(entry.stat().st_mtime > begun_s + 0.1 for entry in os.scandir(records)) and time.time() < begun_s + 60:
            time.sleep(0.05)
        os.kill(os.getpid(), 9)
    time.sleep(0.01)
"""

FRAMEWORKS = """
import warnings
import torch
import torch.utils.data
library = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, name):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
warnings.filterwarnings("ignore")
import lightning
from transformers import Trainer, TrainingArguments

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return {"x": torch.ones(8), "labels": index % 2}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, number):
        return self.net(**batch)["loss"]

    def validation_step(self, batch, number):
        self.log("loss", self.net(**batch)["loss"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", num_sanity_val_steps=0, **quiet)
train, validation = (torch.utils.data.DataLoader(Rows(), batch_size=size) for size in (8, 16))
trainer.fit(Module(), train, validation)

options = {"num_train_epochs": 2, "per_device_train_batch_size": 8, "per_device_eval_batch_size": 16, "use_cpu": True}
arguments = TrainingArguments("hf", eval_strategy="epoch", report_to="none", disable_tqdm=True, save_strategy="no", **options)
Trainer(model=Net(), args=arguments, train_dataset=Rows(), eval_dataset=Rows()).train()
"""


def found(recording: Recording) -> list[Finding]:
    return [Finding("slow", "it is slow", evidence={"remedy": "workers:2"})] if recording.loaders else []


def run(folder: Path, code: str, *, replay: bool = False) -> ScriptProfile:
    script = folder / "train.py"
    script.write_text(dedent(code))
    command = [sys.executable, str(script)]
    return profile(command, replay=replay, out=folder / "out", diagnose=found)


@pytest.fixture(scope="session")
def workers(kept: Kept) -> ScriptProfile:
    """A script with forked and with spawned workers, an evaluation and a checkpoint, replayed."""

    def build(folder: Path) -> ScriptProfile:
        script = folder / "script"
        script.mkdir()
        (script / "log.txt").write_text("before\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(script)
            return run(script, DATASET + WORKERS, replay=True)

    result: ScriptProfile = kept("watched-script", build)
    return result


def loader(result: ScriptProfile, number: int) -> LoaderRecord:
    return next(one for one in result.recording.loaders if one.number == number)


def test_steps_samples_and_losses_are_counted(workers: ScriptProfile) -> None:
    steps = workers.recording.steps
    assert workers.exit_code == 0
    assert (len(steps), steps.total("samples"), steps.total("batches")) == (27, 120, 27)
    assert all(isinstance(loss, float) for loss in steps.column("loss"))
    parts = [steps.total(name) for name in ("wait_s", "forward_s", "backward_s", "optimizer_s")]
    assert min(parts) > 0
    assert sum(parts) < steps.total("wall_s")


@pytest.mark.parametrize(("number", "method", "processes", "samples"), [(0, "fork", 8, 96), (1, "spawn", 1, 24)])
def test_workers_tell_what_they_fetched(workers: ScriptProfile, number: int, method: str, processes: int, samples: int) -> None:
    row = loader(workers, number)
    assert (row.dataset, row.start_method, row.evaluation) == ("Numbers", method, False)
    assert (row.samples, row.fetched_samples, row.sample_shape) == (samples, samples, (3, 4, 4))
    assert sum(process.loader == number for process in workers.recording.workers) == processes
    assert row.getitem_s > 0.004 * samples
    assert 0 < row.collate_s < row.getitem_s
    assert row.startup_s > 0


def test_file_system_calls_of_workers_have_a_line(workers: ScriptProfile) -> None:
    (calls,) = [row for row in workers.recording.calls("stat", phases=["getitem"]) if row.example == "a.txt"]
    assert (Path(calls.file).name, calls.function) == ("train.py", "Numbers.__getitem__")
    assert calls.count == 120 + 24


def test_batches_without_a_backward_are_evaluation(workers: ScriptProfile) -> None:
    assert loader(workers, 2).evaluation
    assert workers.recording.steps.after("evaluate_s") > 24 * 0.004
    assert workers.recording.steps.after("checkpoint_s") > 0


def test_replay_loads_nothing_and_touches_no_file(workers: ScriptProfile) -> None:
    replay = workers.recording.replay
    assert replay is not None
    assert replay.steps > 0, replay.note
    assert replay.step_s < workers.recording.steps.mean("wall_s")
    folder = Path(workers.recording.command[1]).parent
    assert (folder / "log.txt").read_text() == "before\ntrained\n"
    assert sorted(path.name for path in folder.iterdir()) == ["log.txt", "out", "runs", "train.py"]


def test_text_names_findings_and_the_next_command(workers: ScriptProfile) -> None:
    text = workers.to_text()
    assert all(shown in text for shown in ("waiting for data", "head-room", "it is slow", "unchoke profile --try"))
    saved = Path(workers.to_dict()["files"]["recording"])
    assert (saved.parent / "findings.json").exists()
    assert "/logs/profiler/script_" in saved.as_posix()


def test_killed_script_still_shows_its_steps(tmp_path: Path) -> None:
    result = run(tmp_path, DATASET + KILLED, replay=True)
    assert (result.exit_code, len(result.recording.steps)) == (128 + 9, 8)
    assert result.recording.steps.total("wait_s") == 0


def test_lightning_and_hugging_face_are_seen_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recording = run(tmp_path, FRAMEWORKS).recording
    steps = recording.steps
    assert recording.exit_code == 0
    assert (len(steps), steps.total("samples")) == (16, 128)
    trained, evaluated = (sum(one.samples for one in recording.loaders if one.evaluation is what) for what in (False, True))
    assert (trained, evaluated) == (128, 128)
    assert steps.total("evaluate_s") > 0
    assert steps.total("optimizer_s") < steps.total("forward_s") + steps.total("backward_s")


def test_command_that_cannot_be_run(tmp_path: Path) -> None:
    with refused("command-not-runnable", "unchoke profile -- python train.py"):
        profile(["train.py"], out=tmp_path, diagnose=found)
    with refused("nothing-to-profile"):
        profile([], out=tmp_path)
