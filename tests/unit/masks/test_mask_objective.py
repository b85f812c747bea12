from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from unchoke.core.mixing import hash_ids
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.masks.mask_objective import IGNORE, MaskObjective, MaskTally, Turns, ious, mean_iou, turn_each, weigh_classes
from unchoke.masks.patches import NUM_TURNS, turn

SIDE, CLASSES = 8, 3


class Masks:
    def __init__(self, masks: np.ndarray) -> None:
        self._masks = masks

    def masks(self, positions: np.ndarray) -> np.ndarray:
        return self._masks[positions]


def random_masks(num: int = 5) -> np.ndarray:
    masks = np.random.default_rng(1).integers(0, CLASSES, (num, SIDE, SIDE)).astype(np.uint8)
    masks[:, 0] = IGNORE
    return masks


def objective(masks: np.ndarray, **changes: object) -> MaskObjective:
    turns = Turns(hash_ids([str(number) for number in range(len(masks))]), 0, int(changes.pop("num_turns", 1)))  # type: ignore[call-overload]
    return MaskObjective(Masks(masks), CLASSES, turns, torch.device("cpu"), **changes)  # type: ignore[arg-type]


def logits(num: int = 5) -> torch.Tensor:
    return torch.randn(num, CLASSES, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def test_without_dice_loss_is_cross_entropy() -> None:
    masks = random_masks()
    weights = torch.tensor([0.5, 1.0, 2.0])
    aim = objective(masks, dice=0.0, class_weights=weights)
    found = aim.losses(logits(), aim.target_rows(np.arange(5)))
    for number in range(5):
        truth = torch.from_numpy(masks[number : number + 1].astype(np.int64))
        summed = F.cross_entropy(logits()[number : number + 1], truth, weight=weights, ignore_index=IGNORE, reduction="sum")
        assert found[number] == pytest.approx(float(summed) / int((truth != IGNORE).sum()), rel=1e-5)


def test_dice_equals_library_with_every_class() -> None:
    prepare_torchvision()
    from segmentation_models_pytorch.losses import DiceLoss

    masks = random_masks(1)
    aim = objective(masks, dice=1.0)
    ours = aim.losses(logits(1), aim.target_rows(np.arange(1)))
    theirs = DiceLoss(
        "multiclass", from_logits=True, smooth=0.5, ignore_index=IGNORE
    )  # (I + s) over (S / 2 + s), ours is (2 I + 1) over (S + 1)
    assert float(ours) == pytest.approx(float(theirs(logits(1), torch.from_numpy(masks.astype(np.int64)))), rel=1e-4)


def test_batch_parts_have_same_losses() -> None:
    aim = objective(random_masks())
    whole = aim.losses(logits(), aim.target_rows(np.arange(5)))
    parts = [aim.losses(logits()[place : place + 2], aim.target_rows(np.arange(5)[place : place + 2])) for place in (0, 2, 4)]
    assert torch.equal(torch.cat(parts), whole)


def test_unlabelled_patch_no_loss_not_judged() -> None:
    aim = objective(np.full((1, SIDE, SIDE), IGNORE, np.uint8))
    outputs = logits(1).requires_grad_()
    loss = aim.losses(outputs, aim.target_rows(np.arange(1))).sum()
    loss.backward()
    assert float(loss.detach()) == 0
    assert not outputs.grad.any()  # type: ignore[union-attr]
    assert not aim.judged(outputs.detach(), np.arange(1)).any()


def test_confusion_iou_equals_scikit_learn() -> None:
    from sklearn.metrics import jaccard_score

    masks = random_masks()
    aim = objective(masks)
    rows = aim.judged(logits(), np.arange(5))
    assert rows.shape == (5, aim.num_judged)
    tally = MaskTally(CLASSES)
    tally.add(rows[:2].numpy(), np.arange(2))
    tally.add(rows[2:].numpy(), np.arange(2, 5))
    scores = tally.finish()
    known = masks != IGNORE
    expected = jaccard_score(masks[known], logits().argmax(1).numpy()[known], labels=range(CLASSES), average="macro")
    assert scores.metric == pytest.approx(float(expected), rel=1e-5)
    assert scores.loss == pytest.approx(float(rows[:, 0].mean()), rel=1e-5)


def test_a_class_nobody_saw_or_claimed_does_not_count() -> None:
    confusion = np.array([[3.0, 1, 0], [0, 4, 0], [0, 0, 0]])
    assert np.isnan(ious(confusion)[2])
    assert mean_iou(confusion) == pytest.approx((3 / 4 + 4 / 5) / 2)
    assert mean_iou(np.zeros((2, 2))) == 0


def test_masks_are_turned_as_their_patches_are() -> None:
    masks = np.arange(3 * SIDE * SIDE).reshape(3, SIDE, SIDE).astype(np.uint8)
    aim = objective(masks, num_turns=NUM_TURNS)
    positions = np.arange(3)
    seen = set()
    for epoch in range(6):
        ways = aim.turns.of(positions, epoch)
        shown = turn_each(torch.from_numpy(masks), ways)
        assert torch.equal(aim.target_rows(positions, epoch=epoch), shown)
        seen |= {int(way) for way in ways}
    assert len(seen) > 3
    assert torch.equal(aim.target_rows(positions), torch.from_numpy(masks))


@pytest.mark.parametrize("way", range(NUM_TURNS))
def test_turns_alike_for_arrays_and_tensors(way: int) -> None:
    square = np.arange(12).reshape(1, 3, 4)[:, :, :3].copy()
    turned = turn(square, way)
    assert np.array_equal(turned, turn(torch.from_numpy(square), way).numpy())
    assert sum(np.array_equal(turned, turn(square, other)) for other in range(NUM_TURNS)) == 1


def test_rare_classes_weigh_more_mean_one() -> None:
    counts = np.array([900, 90, 10])
    assert weigh_classes(counts, "none") is None
    for how in ("tempered", "balanced"):
        weights = weigh_classes(counts, how)
        assert weights is not None
        assert weights[0] < weights[1] < weights[2]
        assert np.average(weights, weights=counts) == pytest.approx(1)
