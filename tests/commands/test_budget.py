"""`unchoke budget`: what fits, said in words and as plain values."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

import unchoke
from errors import refused
from unchoke.core.events import Chosen, Event, Progress, ignore
from unchoke.core.settings import validate
from unchoke.core.units import parse_bytes
from unchoke.machine.memory.memory_plan import MemoryRoom, StepCost, make_plan
from unchoke.training.budget import BudgetResult, budget
from unchoke.training.count_operations import count_operations

MB, GB = 10**6, 10**9
PARTS = {"weights": 100 * MB, "gradients": 100 * MB, "optimizer": 200 * MB, "baseline": 300 * MB}
ABOUT = {
    "encoder": "some_vit",
    "cut": "-4",
    "num_trained": 4,
    "num_blocks": 12,
    "input_px": 224,
    "tiles": "2×(2×2)",
    "device": "cpu",
    "precision": "float32",
    "limit_reason": "as asked",
}


def costs(fixed: int, each: int, seconds: dict[int, float]) -> list[StepCost]:
    return [StepCost(batch, fixed + each * batch, spent, PARTS) for batch, spent in seconds.items()]


@pytest.fixture
def result() -> BudgetResult:
    train, evaluation = costs(GB, 100 * MB, {1: 0.1, 4: 0.2, 8: 0.5}), costs(GB, 10 * MB, {1: 0.1, 4: 0.2, 16: 0.4})
    plan = make_plan(train[-1], MemoryRoom(3 * GB), batch=17, eval_batch=16, grad_ckpt=False, reasons={"eval_batch": "given"})
    return BudgetResult(ABOUT, plan, {"train": 17, "evaluation": 16}, {"train": train, "evaluation": evaluation}, benchmark=True)


def test_fastest_batch_gets_most_images_through(result: BudgetResult) -> None:
    assert result.fastest == {"train": 4, "evaluation": 16}
    assert [row["images_per_s"] for row in result.speeds["train"]] == pytest.approx([10, 20, 16])


def test_the_answer_reads_well(result: BudgetResult) -> None:
    text = result.to_text()
    assert "some_vit, --cut -4 (4 of 12 blocks train), 224 px, 2×(2×2) tiles, float32 on cpu" in text
    assert "limit       3.0 GB (as asked)" in text
    assert "17 samples at once, by the line through what was measured up to 8; fastest at 4: 20.0 images/s" in text
    assert "4 samples  1.4 GB, 200 ms a step, 20.0 samples/s" in text
    assert all(part in text for part in ("weights", "gradients", "optimizer", "activations", "overhead", "planned"))
    assert "fastest" not in replace(result, benchmark=False).to_text()


def test_the_answer_is_plain_values(result: BudgetResult) -> None:
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["fits"] == {"train": 17, "evaluation": 16}
    assert plain["fastest"]["train"] == 4
    assert plain["memory"] == {"planned_bytes": result.plan.planned_bytes, "limit_bytes": 3 * GB}
    assert "fastest" not in replace(result, benchmark=False).to_dict()


@pytest.mark.parametrize("most", [1, pytest.param(1024, marks=pytest.mark.campaign)])
def test_what_fits_is_found_by_trying_it(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size is tried in a process of its own."""
    monkeypatch.setattr("unchoke.training.budget._MOST", most)
    heard: list[Event] = []
    found = unchoke.budget(
        encoder="test_vit", cut="-1", input_px=512, memory="600MB", grad_ckpt=False, device="cpu", on_event=heard.append
    )
    plan = found.plan
    assert isinstance(found, BudgetResult)
    assert found.fits["train"] >= 1
    assert found.fits["evaluation"] >= found.fits["train"]
    assert plan.planned_bytes <= plan.limit_bytes - plan.margin_bytes
    assert plan.sub_batch == found.fits["train"]
    assert "train_ckpt" not in found.fits
    assert (found.about["num_trained"], found.about["num_blocks"], found.about["input_px"]) == (1, 6, 512)
    progress = [event for event in heard if isinstance(event, Progress)]
    assert progress[-1].done == progress[-1].total >= (1 if most == 1 else 4)
    assert {event.choice.name for event in heard if isinstance(event, Chosen)} >= {"device", "memory"}


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.campaign)])
def test_given_batch_is_planned(size: int) -> None:
    found = budget(encoder="test_vit", cut="-1", batch_size=size, memory="1GB", grad_ckpt=True, device="cpu", on_event=ignore)
    assert (found.plan.batch, found.plan.sub_batch, found.plan.grad_ckpt) == (size, size, True)
    assert found.to_dict()["memory"]["limit_bytes"] == parse_bytes("1GB")


@pytest.mark.parametrize(
    ("options", "code", "part"),
    [
        ({"encoder": "test_vitt"}, "unknown-encoder", "test_vitt"),
        ({"encoder": "test_vit", "cut": "-99"}, "cut-too-deep", "-99"),
        ({"encoder": "test_vit", "cut": "4"}, "bad-settings", "cut"),
        ({"encoder": "test_vit", "memory": "900TB"}, "memory-limit-too-high", "900.0 TB"),
        ({"encoder": "test_vit", "cut": "-1", "memory": "50MB"}, "training-does-not-fit", "50.0 MB"),
    ],
)
def test_what_makes_no_sense_or_cannot_fit_is_refused(options: dict[str, Any], code: str, part: str) -> None:
    with refused(code, part):
        budget(device="cpu", on_event=ignore, **options)


def test_operations_beside_training_are_counted() -> None:
    counted = count_operations(validate({"encoder": "test_resnet"}), torch.device("cpu"), 4 * GB)
    found = {one.operation: one for one in counted}
    assert list(found) == ["extraction", "heads", "mask features", "mask decoder"]
    assert all(one.fits >= one.batch > 0 and one.peak_bytes < 4 * GB for one in counted)
    assert found["heads"].fits > found["extraction"].fits
    tight = {one.operation: one for one in count_operations(validate({"encoder": "test_resnet"}), torch.device("cpu"), 10 * MB)}
    assert tight["mask decoder"].fits == 0


def test_a_network_that_cannot_draw_masks_says_so() -> None:
    *photos, features, decoder = count_operations(validate({"encoder": "test_vit"}), torch.device("cpu"), 4 * GB)
    assert [one.why_not for one in photos] == ["", ""]
    assert "stride" in features.text and features.why_not == decoder.why_not
