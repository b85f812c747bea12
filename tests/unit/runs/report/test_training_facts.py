"""What a record says about the training of a network, in words."""

from __future__ import annotations

from typing import Any

import pytest

from records import as_record
from unchoke.core.record import MemoryPlanRecord
from unchoke.runs.report import training_facts as training


def test_every_part_of_the_training_is_told(network: dict[str, Any]) -> None:
    assert dict(training.facts(as_record(network))) == {
        "network": "tf_efficientnet_lite0, the last 4 of 12 blocks trained",
        "pictures": "2×(2×2) tiles (streams, then rows and columns) at 224 px, fused by FiLM",
        "targets": "green, dead learned, never negative; total = green + dead",
        "target weights": "green 0.1, dead 0.2, total 0.7",
        "extra inputs": "NDVI",
        "step": "16 samples, 4 at once; 64 at once in evaluation",
        "precision": "bfloat16, channels last, gradient checkpointing",
        "learning rate": "0.001 for the head; 0.0001 for the backbone's last layer, each before it 0.8 times the next; "
        "1 epoch of warm-up, then a cosine",
        "averaging": "weights are averaged over steps, decay 0.999",
        "held back by": "weight decay 0.02, gradients clipped at 1",
        "batch statistics": "frozen",
        "course": "1,520 steps in 40 epochs, epoch 31 was kept, went on from step 300 after a stop",
        "out of memory": "2 times: what did not fit was halved and run again, same samples, at the end 4 at once",
    }


@pytest.mark.parametrize(
    ("cut", "words"),
    [("end", "all of it frozen"), ("none", "all of it trained, from pixels"), ("-1", "the last of 12 blocks trained")],
)
def test_the_cut_is_said_in_words(network: dict[str, Any], cut: str, words: str) -> None:
    network["training"]["cut"] = cut
    assert dict(training.facts(as_record(network)))["network"].endswith(words)


def test_what_was_off_is_not_listed(network: dict[str, Any]) -> None:
    network["training"] |= {"out_of_memory_halvings": 0, "resumed_step": 0, "sub_batch_at_the_end": 16, "targets": None}
    network["training"]["tiles"] = "1×(1×1)"
    network["training"]["loop"] |= {"body_lr": 0.0, "warmup_epochs": 0, "ema_decay": 0, "clip": 0, "grad_ckpt": False}
    said = dict(training.facts(as_record(network)))
    assert said["pictures"] == "whole, at 224 px"
    assert said["learning rate"] == "0.001"
    assert said["averaging"] == "none"
    assert said["held back by"] == "weight decay 0.02"
    assert said["step"] == "16 samples; 64 at once in evaluation"
    assert said["precision"] == "bfloat16, channels last"
    assert not {"out of memory", "targets", "target weights"} & set(said)


def test_seconds_of_training_add_up(network: dict[str, Any]) -> None:
    spent = training.seconds(as_record(network))
    assert [(one.what, one.seconds) for one in spent] == [
        ("steps", 40.0),  # what was prepared inside them is told of by itself
        ("preparing data", 20.0),
        ("waiting for data", 15.0),
        ("evaluation", 10.0),
        ("checkpoints", 5.0),
        ("beginning and ending", 10.0),
    ]
    assert sum(one.share for one in spent) == pytest.approx(1)


def test_planned_memory_is_divided_in_one_order(network: dict[str, Any]) -> None:
    plan = network["memory"]["plan"]
    plan["parts"] = dict(sorted(plan["parts"].items()))
    names = [name for name, _ in training.memory_parts(as_record(network).memory)]
    assert names == ["weights", "gradients", "optimizer", "activations", "cache", "overhead"]


def test_heads_on_features_have_nothing_to_tell(groceries: dict[str, Any]) -> None:
    record = as_record(groceries)
    assert training.facts(record) == training.seconds(record) == training.memory_parts(record.memory) == []
    assert training.sums_of(record) == {}
    assert training.memory_text(record.memory) == "1.1 GB planned, 812.0 MB measured"
    bounded = record.memory.model_copy(update={"plan": MemoryPlanRecord(limit_bytes=4 * 10**9, counted=True)})
    assert training.memory_text(bounded) == "at most 1.1 GB planned of a limit of 4.0 GB, 812.0 MB measured"
