"""`profile`: the causes of hand-made recordings, one real run, saved steps compared, a signal that arrives once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.doctor.conftest import Typed

from unchoke_doctor import step_times
from unchoke_doctor.causes import catalogue
from unchoke_doctor.causes.diagnose import diagnose
from unchoke_doctor.errors import UnchokeError
from unchoke_doctor.profile import ScriptProfile
from unchoke_doctor.recording import Recording
from unchoke_doctor.watch import stacks
from unchoke_doctor.watch.account import COLUMNS

STEPS, STEP_S = 60, 0.1
SOURCE = """\
import gc, glob, time
import numpy as np
from torch.utils.data import DataLoader

class Photos:
    def __getitem__(self, index):
        names = glob.glob("*.jpg")
        image = self.augment(names[index])
        whole = np.load("scene.npy")[:64, :64]
        for row in image:
            row[0] = row[1] + 1
        return image

def collate(samples):
    return [value for sample in samples for value in sample]

class Net:
    def forward(self, images):
        fields = np.fft.fft2(images)
        fields = self.adjacency @ fields
        for layer in self.layers:
            images = layer(images)
        for tile in range(16):
            images = images + tile
        return images

def evaluate(net, loader):
    for images in loader:
        net(images)

def filters(size):
    return np.zeros(size)

def drawn(size):
    return np.random.normal(size=size)

def train(net, loader, optimizer, losses):
    for images in loader:
        loss = net(images)
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
        gc.collect()
        total = loss.item()
        for one in losses:
            total += one.item()
        print(np.histogram(losses))
        bank = filters(512)
        noise = drawn(512)
        loader = DataLoader(images)
        torch.save(net, "last.pt")
        for index in range(600):
            answer = net.predict(losses[index:index + 1])
"""
TRAIN = {"function": "train"}
ROOT = {"name": "Net", "class": "Net", "depth": 0, "seconds_per_step": 0.04, "batch": 32, "input_shape": [32, 3, 64, 64],
        "training": True, "num_params": 1000, "num_trainable": 1000, "num_in_optimizer": 1000, "grad_enabled": True,
        "output_requires_grad": True, "dtype": "float32", "calls_per_step": 1.0, "output_width": 10}  # fmt: skip
PART = {**ROOT, "name": "Net.encoder", "depth": 1, "num_in_optimizer": 0, "num_trainable": 0, "seconds_per_step": 0.03}
LOADER = {"number": 0, "dataset": "Photos", "num_samples": 600, "batch_size": 32, "iterators": 3, "batches": STEPS,
          "samples": 32 * STEPS, "fetches": STEPS, "fetched_samples": 32 * STEPS, "fetch_s": 0.06, "getitem_s": 0.05,
          "collate_s": 0.01, "wait_s": 0.06, "sample_shape": [3, 64, 64], "batch_bytes": 32 * 3 * 64 * 64 * 4,
          "collate_file": "/torch/utils/data/_utils/collate.py"}  # fmt: skip
JUDGED = {**LOADER, "number": 1, "evaluation": True, "samples": 600, "batches": 19}
QUICK = {"cores": 16, "busy_cores": 1.0, "torch_threads": 16}


class Script:
    """A script on disk, and recordings of it: a second of training for each `look`, the rest in `loss.backward()`."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "train.py"
        self.file.write_text(SOURCE)

    def look(
        self, text: str, seconds: float, *, function: str, phase: str = "step", stage: str = "other", **more: Any
    ) -> dict[str, Any]:
        line = next(number for number, one in enumerate(SOURCE.splitlines(), 1) if text in one)
        row = {
            "stage": stage,
            "phase": phase,
            "file": str(self.file),
            "line": line,
            "function": function,
            "seconds": seconds,
            "state": "native",
        }
        return {**row, "callers": [[str(self.file), 38, "train"]] if function != "train" else [], **more}

    def recording(
        self, *looks: dict[str, Any], steps: dict[str, float] | None = None, walls: list[float] | None = None, **parts: Any
    ) -> Recording:
        """`steps`: seconds or counts of one step; `parts`: fields of the recording."""
        one = {"samples": 32, "batches": 1, "backwards": 1, "user_s": STEP_S, "steps": 1, "backward_s": 0.05, **(steps or {})}
        rows = [[{**one, "wall_s": wall}.get(name, 0) for name in COLUMNS] for wall in walls or [STEP_S] * STEPS]
        left = sum(walls or [STEP_S] * STEPS) - sum(row["seconds"] for row in looks)
        looks = (*looks, self.look("loss.backward", max(0.0, left), stage="backward", **TRAIN))
        calls = parts.pop("calls", [])
        facts = {"peeks": [], "same_arguments": [], **parts.pop("facts", {})}
        data = {"machine": {"cores": 2, "busy_cores": 1.5, "torch_threads": 2}, "loaders": [LOADER], "modules": [ROOT], **parts}
        main = {"samples": list(looks), "calls": calls, "sampled_s": 6.0, "usage": {"user_s": 6.0}}
        return Recording.from_dict(
            {**data, "command": ["python", "train.py"], "main": main, "facts": facts, "steps": {"columns": COLUMNS, "rows": rows}}
        )

    def call(self, kind: str, **more: Any) -> dict[str, Any]:
        return {"kind": kind, "phase": "getitem", "file": str(self.file), "line": 8, "function": "Photos.__getitem__", **more}


def decoded(side: int, distinct: int) -> dict[str, Any]:
    detail = {"format": "JPEG", "width_px": side, "height_px": side}
    return {"count": 1920, "seconds": 3.0, "amount": 1920.0 * side * side, "distinct": distinct, "detail": detail}


def cases(made: Script) -> dict[str, tuple[Recording, Recording]]:
    """For each cause a recording that has it, and one that nearly has it."""
    look, rec, call = made.look, made.recording, made.call
    inline, beside = {**LOADER, "fetch_s": 4.0, "wait_s": 4.0}, {**LOADER, "num_workers": 2, "fetch_s": 8.0, "wait_s": 5.0}
    sample = {"function": "Photos.__getitem__", "phase": "getitem"}
    forward = {"function": "Net.forward", "stage": "forward"}
    kept = [{"step": 8, "tensors": 10, "holder": None}, {"step": 40, "tensors": 90, "holder": None}]
    grown = [0.05] * 20 + [0.05 + 0.01 * number for number in range(40)]
    table = {
        **PART,
        "name": "Net.words",
        "class": "Embedding",
        "num_params": 10**6,
        "num_in_optimizer": 10**6,
        "output_width": 10,
    }
    head = {**PART, "class": "Linear", "input_shape": [32, 20, 64], "output_width": 20_000}
    product = look("self.adjacency @", 3.0, **forward)
    same = {"file": str(made.file), "function": "filters", "arguments": ["size"], "met": 8, "distinct": 1}
    judge = look("net(images)", 3.0, function="evaluate", phase="evaluate", stage="forward")
    evaluated = {"steps": {"evaluate_s": 0.05}, "loaders": [LOADER, {**JUDGED, "iterators": 30, "samples": 18000}]}
    making = {"loaders": [inline]}
    collating = {"collate_file": str(made.file), "collate_line": 14, "collate": "collate"}
    return {
        "no-workers": (rec(loaders=[inline], machine=QUICK), rec(loaders=[inline], machine={"cores": 1})),
        "few-workers": (rec(loaders=[beside], machine=QUICK), rec(loaders=[beside], machine={**QUICK, "busy_cores": 16.0})),
        "few-torch-threads": (rec(machine={**QUICK, "torch_threads": 1}), rec(machine=QUICK)),
        "heavy-augmentation": (
            rec(look("self.augment(", 3.0, **sample, library="torchvision.transforms.v2:Rotate.forward"), **making),
            rec(look("self.augment(", 0.05, **sample, library="torchvision.transforms.v2:Rotate.forward"), **making),
        ),
        "oversized-decode": (
            rec(calls=[call("decode", **decoded(2048, 600))], **making),
            rec(calls=[call("decode", **decoded(100, 600))], **making),
        ),
        "slow-decode": (
            rec(calls=[call("decode", **decoded(100, 600))], **making),
            rec(calls=[call("decode", **decoded(100, 1920))], **making),
        ),
        "per-sample-scan": (
            rec(look("glob.glob", 3.0, **sample, stage="list"), **making),
            rec(look("glob.glob", 3.0, function="Photos.__getitem__", phase="setup", stage="list")),
        ),
        "whole-file-for-crop": (
            rec(look("np.load", 3.0, **sample, stage="read", library="numpy.lib._npyio_impl:load"), **making),
            rec(look("return image", 3.0, **sample, stage="transform"), **making),
        ),
        "slow-collate": (
            rec(loaders=[{**inline, "collate_s": 3.0, **collating}]),
            rec(loaders=[{**inline, "collate_s": 0.02, **collating}]),
        ),
        "workers-restarted": (
            rec(loaders=[{**beside, "startup_s": 3.0, "iterators": 6}]),
            rec(loaders=[{**beside, "startup_s": 3.0, "iterators": 6, "persistent": True}]),
        ),
        "frozen-recomputed": (
            rec(look("layer(images)", 3.0, **forward), modules=[ROOT, {**PART, "repeated_inputs_share": 0.6}]),
            rec(look("layer(images)", 3.0, **forward), modules=[ROOT, {**PART, "repeated_inputs_share": 0.0}]),
        ),
        "frozen-gradients": (
            rec(modules=[ROOT, {**PART, "num_trainable": 500}]),
            rec(modules=[ROOT, {**PART, "num_trainable": 500, "num_in_optimizer": 500}]),
        ),
        "double-precision": (rec(modules=[{**ROOT, "dtype": "float64"}]), rec(modules=[ROOT])),
        "small-batches": (
            rec(steps={"samples": 1, "wall_s": 0.01}, walls=[0.01] * STEPS),
            rec(steps={"samples": 4, "batches": 4, "backwards": 4}, walls=[0.01] * STEPS),
        ),
        "slow-optimizer": (
            rec(steps={"optimizer_s": 0.04}, modules=[ROOT, table | {"input_shape": [32, 20]}]),
            rec(steps={"optimizer_s": 0.04}, modules=[ROOT, table | {"input_shape": [32, 20], "sparse": True}]),
        ),
        "padded-batches": (rec(loaders=[{**LOADER, "padded_share": 0.7}]), rec(loaders=[{**LOADER, "padded_share": 0.1}])),
        "ignored-positions": (
            rec(product, loaders=[{**LOADER, "ignored_share": 0.8}], modules=[ROOT, head]),
            rec(product, loaders=[{**LOADER, "ignored_share": 0.1}], modules=[ROOT, head]),
        ),
        "dense-zeros": (
            rec(product, modules=[{**ROOT, "zero_share": 0.999}]),
            rec(product, modules=[{**ROOT, "zero_share": 0.5}]),
        ),
        "growing-graph": (
            rec(walls=grown, facts={"kept_graphs": kept}),
            rec(walls=grown, facts={"kept_graphs": [kept[0], {**kept[0], "step": 20, "tensors": 5}, kept[1]]}),
        ),
        "large-allocation": (
            rec(steps={"minor_faults": 50_000, "system_s": 0.08}),
            rec(steps={"minor_faults": 500, "system_s": 0.05}),
        ),
        "slow-checkpoint": (
            rec(steps={"checkpoint_s": 0.05}, calls=[call("save", count=STEPS, seconds=3.0) | {"phase": "checkpoint"}]),
            rec(steps={"checkpoint_s": 0.05}, calls=[call("save", count=3, seconds=3.0, amount=3e8) | {"phase": "checkpoint"}]),
        ),
        "slow-evaluation": (
            rec(judge, **evaluated),
            rec(judge, steps={"evaluate_s": 0.05}, loaders=[LOADER, {**JUDGED, "iterators": 3}]),
        ),
        "no-inference-mode": (
            rec(judge, **evaluated, modules=[ROOT, {**ROOT, "in_evaluation": True}]),
            rec(judge, **evaluated, modules=[ROOT, {**ROOT, "in_evaluation": True, "grad_enabled": False}]),
        ),
        "one-at-a-time": (
            rec(judge, steps={"evaluate_s": 0.05}, loaders=[LOADER, {**JUDGED, "batch_size": 1}]),
            rec(judge, steps={"evaluate_s": 0.05}, loaders=[LOADER, JUDGED]),
        ),
        "waiting": (
            rec(look("time.sleep", 3.0, **TRAIN, state="sleep")),
            rec(look("loss = net", 3.0, **TRAIN, stage="forward", state="lock")),
        ),
        "costly-call": (rec(look("gc.collect", 3.0, **TRAIN)), rec(look("gc.collect", 0.01, **TRAIN))),
        "host-sync": (rec(look("total += one.item", 3.0, **TRAIN)), rec(look("total = loss.item", 3.0, **TRAIN))),
        "slow-logging": (rec(look("np.histogram", 3.0, **TRAIN)), rec(look("np.histogram", 0.01, **TRAIN))),
        "python-loop": (rec(look("images + tile", 3.0, **forward)), rec(look("layer(images)", 3.0, **forward))),
        "foreign-forward": (rec(look("np.fft.fft2", 3.0, **forward)), rec(look("images + tile", 3.0, **forward))),
        "repeated-work": (
            rec(look("np.zeros", 3.0, function="filters"), facts={"same_arguments": [same]}),
            rec(look("np.random.normal", 3.0, function="drawn"), facts={"same_arguments": [{**same, "function": "drawn"}]}),
        ),
    }  # fmt: skip


CODES = [
    "no-workers", "few-workers", "few-torch-threads", "heavy-augmentation", "oversized-decode", "slow-decode",
    "per-sample-scan", "whole-file-for-crop", "slow-collate", "workers-restarted", "frozen-recomputed",
    "frozen-gradients", "double-precision", "small-batches", "slow-optimizer", "padded-batches", "ignored-positions",
    "dense-zeros", "growing-graph", "large-allocation", "slow-checkpoint", "slow-evaluation", "no-inference-mode",
    "one-at-a-time", "waiting", "costly-call", "host-sync", "slow-logging", "python-loop", "foreign-forward",
    "repeated-work",
]  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_cause(tmp_path: Path, code: str) -> None:
    has, nearly = cases(Script(tmp_path))[code]
    found = {one.code: one for one in diagnose(has)}
    assert code in found, list(found)
    assert found[code].evidence["share"] >= 0.1
    assert (found[code].basis, found[code].kind) == ("measured", catalogue()[code].kind)
    assert code not in {one.code for one in diagnose(nearly) if one.evidence["share"] >= 0.1}


def test_two_workers_of_sixteen_cores_first(tmp_path: Path) -> None:
    made = Script(tmp_path)
    loader = {**LOADER, "num_workers": 2, "fetch_s": 10.0, "wait_s": 5.0}
    calls = [made.call("decode", **decoded(512, 600))]
    found = diagnose(made.recording(loaders=[loader], machine=QUICK, calls=calls))
    assert found[0].code == "few-workers"


@pytest.mark.parametrize("loaders", [[LOADER], []])
def test_accumulation_not_accused(tmp_path: Path, loaders: list[dict[str, Any]]) -> None:
    steps = {"samples": 32 if loaders else 0, "batches": 16 if loaders else 0, "backwards": 16, "backward_s": 0.03}
    micro = {**ROOT, "batch": 2, "calls_per_step": 16.0}
    made = Script(tmp_path).recording(steps=steps, modules=[micro], loaders=loaders, walls=[0.04] * STEPS)
    assert not diagnose(made)


def test_unexplained_line_comes_first(tmp_path: Path) -> None:
    made = Script(tmp_path)
    recording = made.recording(made.look("total = loss.item", 4.0, **TRAIN), steps={"backward_s": 0.02})
    profile = ScriptProfile(recording, diagnose(recording), tmp_path, "")
    assert not profile.findings
    assert SOURCE.splitlines()[profile.lines[0]["line"] - 1].strip() == "total = loss.item()"
    assert "total = loss.item()" in profile.to_text().split("\n\n")[1]


def test_gain_within_replay(tmp_path: Path) -> None:
    loader = {**LOADER, "num_workers": 2, "fetch_s": 4.0, "wait_s": 4.0}
    replay = {"step_s": 0.08, "steps": 20, "loader": 0}
    found = diagnose(Script(tmp_path).recording(loaders=[loader], machine=QUICK, replay=replay, steps={"wait_s": 0.066}))
    assert found[0].code == "few-workers"
    assert max(one.evidence["share"] for one in found) <= 0.21


def test_packed_checkpoint_once_an_epoch(tmp_path: Path) -> None:
    made = Script(tmp_path)
    calls = [made.call("save", count=3, seconds=3.0, amount=3e7) | {"phase": "checkpoint"}]
    found = diagnose(made.recording(steps={"checkpoint_s": 0.05}, calls=calls))
    assert [one.code for one in found] == ["slow-checkpoint"]


def test_predict_one_sample_at_a_time(tmp_path: Path) -> None:
    made = Script(tmp_path)
    look = made.look("net.predict(", 4.0, **TRAIN, library="keras.src.trainer:error_handler", state="python")
    found = diagnose(made.recording(look))
    assert [one.code for one in found] == ["one-at-a-time"]


def test_forward_line_before_the_trainer_that_holds_its_backward(tmp_path: Path) -> None:
    made = Script(tmp_path)
    fit = [made.look("loss = net(", 1.0, **TRAIN, stage=stage) for stage in ("backward", "backward", "optimizer")]
    fft = made.look("np.fft.fft2", 1.5, function="Net.forward", stage="forward")
    recording = made.recording(fft, *fit, walls=[0.075] * STEPS)
    first = ScriptProfile(recording, [], tmp_path, "").lines[0]
    assert (first["stage"], first["text"]) == ("forward", "fields = np.fft.fft2(images)")


def test_installed_elsewhere_is_no_user_code(tmp_path: Path) -> None:
    (tmp_path / "site" / "keras-3.0.dist-info").mkdir(parents=True)
    package, script = str(tmp_path / "site" / "keras" / "src" / "layers.py"), str(tmp_path / "train.py")
    assert not stacks.is_user_file(package, script)
    assert stacks.is_user_file(str(tmp_path / "layers" / "own.py"), script)
    assert stacks.is_user_file(package, str(tmp_path / "site" / "keras" / "train.py"))
    assert stacks.module_name(package) == "keras.src.layers"


def test_nothing_seen_is_said(tmp_path: Path) -> None:
    made = Script(tmp_path)
    recording = Recording.from_dict({"main": {"samples": [made.look("np.zeros", 2.0, function="filters", phase="setup")]}})
    text = ScriptProfile(recording, diagnose(recording), tmp_path, "").to_text()
    assert "no optimizer step" in text
    assert "np.zeros(size)" in text


# --- a real run -------------------------------------------------------------------------------------------------------

PLANTED = """\
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 256
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((64,), float(index)), index % 2

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for epoch in range(3):
    for numbers, labels in DataLoader(Numbers(), batch_size=16):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(numbers), labels).backward()
        optimizer.step()
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PLANTED)
    return tmp_path


def test_real_run(planted: Path, doctor: Typed) -> None:
    answer = doctor("profile", "--json", "--save", "base.json", "--", sys.executable, "train.py")
    assert answer.code == 0
    result = answer.last["result"]
    first = result["lines"][0]
    assert (Path(first["file"]).name, first["text"]) == ("train.py", "time.sleep(0.001)")
    assert first["share"] > 0.5
    assert result["findings"][0]["code"] == "waiting"
    assert result["headroom"]["share"] > 0.5
    assert Path(result["files"]["recording"]).is_relative_to("unchoke-out/logs/profiler")
    assert len(json.loads(Path("base.json").read_text())["step_s"]) == 46
    again = doctor(
        "profile", "--no-replay", "--against", "base.json", "--fail-if-slower", "900%", "--", sys.executable, "train.py"
    )
    assert again.code == 0
    assert "an epoch of 16 steps" in again.stdout


# --- saved steps ------------------------------------------------------------------------------------------------------


def saved(factor: float = 1.0, number: int = 60) -> step_times.StepTimes:
    steps = tuple(factor * (0.1 + 0.01 * (place % 7) + (0.2 if place % 20 == 0 else 0.0)) for place in range(number))
    return step_times.StepTimes(steps, {"backward": factor * 0.1}, machine={"cores": 2})


@pytest.mark.parametrize(("factor", "fails"), [(1.0, False), (1.02, False), (1.08, False), (1.4, True), (0.7, False)])
def test_slower_fails_and_noise_does_not(factor: float, fails: bool) -> None:
    found = step_times.compare(saved(), saved(factor), limit_percent=10)
    assert found.low <= found.ratio <= found.high
    assert found.fails is fails


def test_slower_exits_1(tmp_path: Path) -> None:
    recording = Script(tmp_path).recording()
    comparison = step_times.compare(saved(), saved(1.5), limit_percent=10)
    profile = ScriptProfile(recording, [], tmp_path, "", comparison=comparison)
    assert profile.exit_code == 1
    assert profile.to_github().startswith("::error ")
    assert "slower (limit 10 %)" in profile.to_text()


def test_too_few_steps() -> None:
    with pytest.raises(UnchokeError) as raised:
        step_times.compare(saved(), saved(number=5))
    assert raised.value.code == "too-few-steps"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], "nothing-to-profile"),
        (["--fail-if-slower", "10%", "--", "true"], "options-conflict"),
        (["--against", "missing.json", "--", "true"], "no-such-file"),
        (["--", "python", "missing.py"], "no-such-file"),
        (["--", "no-such-program"], "command-not-runnable"),
    ],
)
def test_refused(doctor: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: str) -> None:
    monkeypatch.chdir(tmp_path)
    answer = doctor("profile", "--json", *words)
    assert (answer.code, answer.last["error"]["code"]) == (2, code)
    assert not list(tmp_path.iterdir())


def test_signal_arrives_once(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('handled', flush=True))\n"
        "print('ready', flush=True)\n"
        "began = time.monotonic()\n"
        "while time.monotonic() < began + 2:\n    time.sleep(0.05)\n"
    )
    words = [sys.executable, "-m", "unchoke_doctor", "profile", "--no-replay", "--", sys.executable, "wait.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(step_times.__file__).parents[1])}
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, text=True, start_new_session=True, **streams) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGTERM)
        rest = process.stdout.read()
    assert rest.count("handled") == 1
    assert process.returncode == 0
