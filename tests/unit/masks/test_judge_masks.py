from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unchoke.core.boxes import Box
from unchoke.masks.judge_masks import judge_masks, mask_scores, stitched_bands
from unchoke.masks.mask_objective import IGNORE
from unchoke.masks.patches import Patch

SIDE, OVERLAP, SIZE = 32, 8, 80
NAMES = ("land", "water", "ice")


def scene(name: str = "one") -> Any:
    """As much of a scene as judging looks at."""
    return SimpleNamespace(scene_id=name, grid=SimpleNamespace(height=SIZE, width=SIZE))


def patches(split_of: Any) -> list[Patch]:
    starts = range(0, SIZE - OVERLAP, SIDE - OVERLAP)
    boxes = [Box(top, left, SIDE, SIDE) for top in starts for left in starts]
    return [Patch(f"one_r{box.top}_c{box.left}", "one", box, split_of(box)) for box in boxes]


def truth() -> NDArray[np.uint8]:
    classes = np.zeros((SIZE, SIZE), np.uint8)
    classes[:, 40:] = 1
    classes[:5] = IGNORE
    return classes


def read_mask(scene_id: str, box: Box) -> NDArray[np.uint8]:
    return truth()[box.top : box.bottom, box.left : box.right]


def knows(all_patches: list[Patch], answer: NDArray[np.uint8]) -> Any:
    """A network that always gives `answer`."""
    padded = np.pad(answer, ((0, SIDE), (0, SIDE)))

    def predict(positions: NDArray[np.int64]) -> NDArray[np.float32]:
        boxes = [all_patches[position].box for position in positions]
        parts = np.stack([padded[box.top : box.bottom, box.left : box.right] for box in boxes])
        return np.stack([(parts == number).astype(np.float32) for number in range(len(NAMES))], axis=1)

    return predict


def judge(all_patches: list[Patch], answer: NDArray[np.uint8]) -> Any:
    options: dict[str, Any] = {"read_mask": read_mask, "class_names": NAMES, "overlap_px": OVERLAP, "batch": 3}
    return judge_masks([scene()], all_patches, ("val", "test"), predict=knows(all_patches, answer), **options)


def test_every_labelled_pixel_of_a_split_is_judged_once() -> None:
    everything = patches(lambda box: "test")
    scores = judge(everything, np.where(truth() == IGNORE, 0, truth()).astype(np.uint8))
    assert set(scores) == {"test"}
    assert scores["test"].num_pixels == (truth() != IGNORE).sum()
    assert scores["test"].mean_iou == pytest.approx(1)
    assert [row.support for row in scores["test"].per_class] == [75 * 40, 75 * 40, 0]
    assert scores["test"].per_class[2].iou is None  # neither there nor claimed


def test_figures_per_class_are_those_counted_by_hand() -> None:
    wrong = np.where(truth() == 1, 1, 0).astype(np.uint8)
    wrong[60:, 40:] = 0  # 20 rows of water taken for land
    scores = judge(patches(lambda box: "val"), wrong)["val"]
    hit, missed = 55 * 40, 20 * 40
    assert scores.confusion == [[75 * 40, 0, 0], [missed, hit, 0], [0, 0, 0]]
    assert scores.per_class[1].iou == pytest.approx(hit / (hit + missed))
    assert scores.per_class[1].f1 == pytest.approx(2 * hit / (2 * hit + missed))
    assert scores.per_class[0].precision == pytest.approx(3000 / (3000 + missed))
    assert scores.metrics()["iou/water"].value == scores.per_class[1].iou


def test_split_judged_by_its_own_patches() -> None:
    """The patches of the other split are always wrong; not a pixel may follow them."""
    mixed = patches(lambda box: "val" if box.left < 24 else "train")
    own = [(place, patch) for place, patch in enumerate(mixed) if patch.split == "val"]
    right = np.where(truth() == IGNORE, 0, truth()).astype(np.uint8)
    seen = np.full((SIZE, SIZE), IGNORE, np.uint8)
    for band, classes in stitched_bands(scene(), own, knows(mixed, right), num_classes=3, overlap_px=OVERLAP, batch=2):
        seen[band.top : band.bottom, band.left : band.right] = classes
    covered = np.zeros((SIZE, SIZE), bool)
    covered[:, :SIDE] = True
    assert np.array_equal(seen != IGNORE, covered)
    assert np.array_equal(seen[covered], right[covered])


def test_interval_over_scenes() -> None:
    good, bad = np.array([[90, 5], [5, 100]]), np.array([[50, 50], [50, 50]])
    assert not mask_scores([good] * 3, NAMES[:2]).intervals
    alike = mask_scores([good] * 8, NAMES[:2]).metrics()["iou/water"]
    assert alike.low == pytest.approx(alike.value) == pytest.approx(alike.high)
    mixed = mask_scores([good, bad] * 4, NAMES[:2]).metrics()["mean_iou"]
    assert mixed.low is not None and mixed.high is not None and mixed.value is not None
    assert 0.33 < mixed.low < mixed.value - 0.05 < mixed.value + 0.05 < mixed.high < 0.91


def test_nothing_labelled_gives_no_figures() -> None:
    scores = mask_scores([np.zeros((3, 3), np.int64)], NAMES)
    assert scores.mean_iou is None
    assert scores.num_pixels == 0
