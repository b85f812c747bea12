"""The loop's settings: what was typed stands, the rest is chosen and says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from children import same_imports
from unchoke.core.events import Chosen
from unchoke.core.settings import Settings
from unchoke.core.workspace import Workspace
from unchoke.features.encoders import bare_encoder
from unchoke.machine.memory.memory_watch import MemoryWatch
from unchoke.runs.session import Session
from unchoke.training.data import Problem
from unchoke.training.network import loop_choices
from unchoke.training.network.loop_choices import TrainedPart, choose_loop
from unchoke.training.network.loop_config import LoopConfig


def problem(num_train: int, *, classes: tuple[int, ...] = (1, 1)) -> Problem:
    shares = np.repeat(np.arange(len(classes)), classes)
    targets = np.resize(shares, num_train).astype(np.int64)
    ids = [str(number) for number in range(num_train)]
    return Problem("classification", tuple("abcdef"[: len(classes)]), targets, {"train": np.arange(num_train)}, ids)


def chosen(given: dict[str, object], what: Problem, folder: Path, **network: object) -> tuple[LoopConfig, dict[str, object]]:
    told = {}

    def listen(event: object) -> None:
        if isinstance(event, Chosen):
            assert event.choice.reason
            told[event.choice.name] = event.choice.value

    session = Session(Workspace(folder), Settings(device="cpu", **given), listen, MemoryWatch())
    part = {"anything": session.settings.cut != "end", "batch_norm": True, "convolutions": True, **network}
    return choose_loop(session, what, TrainedPart(**part)), told


@pytest.mark.parametrize(("num_train", "batch_size"), [(20, 8), (200, 16), (2000, 32)])
def test_small_data_gets_small_batches(num_train, batch_size, tmp_path):
    loop, told = chosen({"cut": "-4"}, problem(num_train), tmp_path)
    assert loop.batch_size == loop.sub_batch == told["batch_size"] == batch_size
    assert loop.eval_batch > batch_size


def test_what_was_typed_stands_and_is_not_told_as_a_choice(tmp_path):
    given = {
        "cut": "-4",
        "batch_size": 7,
        "lr": 0.5,
        "ema": 0.0,
        "clip": 0.0,
        "mixup": 0.3,
        "batch_norm": "train",
        "sub_batch": 3,
    }
    loop, told = chosen(given, problem(2000), tmp_path)
    found = (loop.batch_size, loop.lr, loop.ema_decay, loop.clip, loop.mixup, loop.batch_norm, loop.sub_batch)
    assert found == (7, 0.5, 0.0, 0.0, 0.3, "train", 3)
    assert not told.keys() & {"batch_size", "lr", "ema", "clip", "mixup", "batch_norm"}


def test_weights_are_averaged_only_over_enough_steps(tmp_path):
    assert chosen({"cut": "-4", "epochs": 2}, problem(40), tmp_path)[0].ema_decay == 0
    assert 0.9 < chosen({"cut": "-4", "epochs": 20}, problem(2000), tmp_path)[0].ema_decay < 1


def test_rare_classes_weigh_more_if_sizes_differ(tmp_path):
    assert chosen({"cut": "-4"}, problem(200, classes=(5, 1)), tmp_path)[0].class_weights == "gentle"
    assert chosen({"cut": "-4"}, problem(200), tmp_path)[0].class_weights == "none"


def test_a_frozen_backbone_has_no_rate_of_its_own(tmp_path):
    assert chosen({"tiles": "2x2", "cut": "end"}, problem(200), tmp_path)[0].body_lr == 0
    loop = chosen({"cut": "-4"}, problem(200), tmp_path)[0]
    assert 0 < loop.body_lr < loop.lr


def test_layout_and_precision_by_network_and_device(tmp_path):
    loop, told = chosen({"cut": "-4"}, problem(200), tmp_path, convolutions=False, batch_norm=False)
    assert (loop.memory_format, loop.dtype, told["train_precision"]) == ("contiguous", "float32", "f32")
    assert "batch_norm" not in told


def test_choosing_twice_gives_the_same_loop(tmp_path):
    assert chosen({"cut": "-4"}, problem(200), tmp_path)[0] == chosen({"cut": "-4"}, problem(200), tmp_path)[0]


@pytest.mark.parametrize(
    ("encoder", "cut", "part"),
    [
        ("test_efficientnet", "-1", TrainedPart(True, True, True)),
        ("test_efficientnet", "end", TrainedPart(False, False, False)),
        ("test_vit", "-1", TrainedPart(True, False, False)),
        ("test_vit", "none", TrainedPart(True, False, False)),
        ("test_convnext", "-1", TrainedPart(True, False, True)),
    ],
)
def test_only_what_trains_is_looked_at(encoder, cut, part):
    assert TrainedPart.of(bare_encoder(encoder), cut) == part


def test_compile_without_compiler_is_left_out(tmp_path: Path) -> None:
    """In a process of its own: torch looks for the compiler once."""
    code = (
        "import torch; from unchoke.machine.backend import why_not_compiled; "
        "print(why_not_compiled(torch.device('cpu'))); print(why_not_compiled(torch.device('cpu')))"
    )
    env = {**same_imports(), "CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert "compiler" in said.splitlines()[0].lower()


def test_run_without_compiler_trains_uncompiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_choices, "why_not_compiled", lambda device: "no C++ compiler")
    assert not chosen({"cut": "-4", "compile": True}, problem(200), tmp_path)[0].compile
    monkeypatch.setattr(loop_choices, "why_not_compiled", lambda device: "")
    assert chosen({"cut": "-4", "compile": True}, problem(200), tmp_path)[0].compile
