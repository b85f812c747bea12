"""Patches become one picture: bands of bounded size, each pixel from the patches that cover it, nothing done twice."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import mask_run
from unchoke.core.boxes import Box, plan_boxes
from unchoke.masks.stitch import BandValues, StitchPlan, blend_shares, blend_window, count_patches, plan_stitch, stitch

PLAN = StitchPlan(height=75, width=118, patch_px=32, overlap_px=8, num_classes=3, strip_px=48, band_px=32)


def picture(plan: StitchPlan, seed: int = 0) -> BandValues:
    return np.random.default_rng(seed).random((plan.num_classes, plan.height, plan.width), np.float32)


class Cut:
    """Predicts what the picture shows there, and remembers what it was asked."""

    def __init__(self, whole: BandValues, patch_px: int) -> None:
        self._padded = np.pad(whole, ((0, 0), (0, patch_px), (0, patch_px)))
        self.asked: list[list[Box]] = []

    def __call__(self, patches: list[Box]) -> BandValues:
        self.asked.append(patches)
        return np.stack([self._padded[:, one.top : one.bottom, one.left : one.right] for one in patches])


def noise(patches: list[Box]) -> BandValues:
    """Other values for each patch, so that neighbours disagree."""
    return np.stack(
        [np.random.default_rng([one.top, one.left]).random((3, one.height, one.width), np.float32) for one in patches]
    )


def put_together(plan: StitchPlan, pieces: list[tuple[Box, BandValues]]) -> BandValues:
    whole = np.full((plan.num_classes, plan.height, plan.width), np.inf, np.float32)
    for band, values in pieces:
        whole[:, band.top : band.bottom, band.left : band.right] = values
    return whole


def weighted_mean(plan: StitchPlan) -> NDArray[np.float64]:
    """The definition, written down once more: sum of weight × value over sum of weights."""
    window = blend_window(plan.patch_px, plan.overlap_px).astype(np.float64)
    shape = (plan.num_classes, plan.height + plan.patch_px, plan.width + plan.patch_px)
    sums, weights = np.zeros(shape), np.zeros(shape)
    for box in plan_boxes(plan.height, plan.width, size_px=plan.patch_px, overlap_px=plan.overlap_px, edges="padded"):
        sums[:, box.top : box.bottom, box.left : box.right] += window * noise([box])[0]
        weights[:, box.top : box.bottom, box.left : box.right] += window
    inside = (slice(None), slice(plan.height), slice(plan.width))
    mean: NDArray[np.float64] = sums[inside] / weights[inside]
    return mean


def test_the_window_is_smooth_symmetric_and_nowhere_zero() -> None:
    window = blend_window(64, 16)
    assert window.shape == (64, 64)
    assert window.min() > 0
    assert window.max() == 1
    np.testing.assert_array_equal(window, window[::-1])
    np.testing.assert_allclose(window, window.T)
    assert np.abs(np.diff(window, axis=0)).max() < 0.12
    assert (blend_window(8, 0) == 1).all()


def test_shares_sum_to_one() -> None:
    shares = blend_shares([0, 24, 48], patch_px=32, overlap_px=8)
    total = np.zeros(80)
    for start, share in zip((0, 24, 48), shares, strict=True):
        total[start : start + 32] += share
    np.testing.assert_allclose(total, 1, atol=1e-6)
    assert (shares[0, :24] == 1).all()
    assert (shares[1, 8:24] == 1).all()


def test_cut_then_stitched_is_the_picture() -> None:
    whole = picture(PLAN)
    found = put_together(PLAN, list(stitch(PLAN, Cut(whole, 32), batch=4)))
    np.testing.assert_allclose(found, whole, atol=1e-6)
    np.testing.assert_array_equal(found[:, 8:24, 8:24], whole[:, 8:24, 8:24])
    np.testing.assert_array_equal(found[:, :24, :24], whole[:, :24, :24])


def test_stitch_equals_blend_in_memory_bitwise() -> None:
    found = put_together(PLAN, list(stitch(PLAN, noise, batch=5)))
    in_ram = mask_run.stitch_in_ram(PLAN, noise)
    np.testing.assert_array_equal(found, in_ram)
    np.testing.assert_allclose(in_ram, weighted_mean(PLAN), atol=1e-6)


def test_bands_cover_picture_once_in_order() -> None:
    bands = [band for band, _ in stitch(PLAN, noise, batch=8)]
    assert bands == PLAN.bands()
    count = np.zeros((PLAN.height, PLAN.width))
    for band in bands:
        count[band.top : band.bottom, band.left : band.right] += 1
    assert (count == 1).all()


def test_batches_are_full_up_to_the_last_one() -> None:
    cut = Cut(picture(PLAN), 32)
    list(stitch(PLAN, cut, batch=7))
    sizes = [len(patches) for patches in cut.asked]
    assert set(sizes[:-1]) == {7}
    assert sum(sizes) == count_patches(PLAN, PLAN.bands())


def test_done_bands_skipped_rest_same_bits() -> None:
    full = dict(stitch(PLAN, noise, batch=4))
    for already in ([0], [0, 1], [1], [0, 2, 5], [3, 4, 5, 6]):
        done = {PLAN.bands()[number] for number in already}
        rest = dict(stitch(PLAN, noise, batch=3, done=done.__contains__))
        assert rest.keys() == full.keys() - done
        for band, values in rest.items():
            np.testing.assert_array_equal(values, full[band])


def test_all_done_predicts_nothing() -> None:
    cut = Cut(picture(PLAN), 32)
    assert list(stitch(PLAN, cut, batch=4, done=lambda _: True)) == []
    assert cut.asked == []


def test_only_patches_into_next_band_repeated() -> None:
    cut = Cut(picture(PLAN), 32)
    first = PLAN.bands()[0]
    list(stitch(PLAN, cut, batch=1, done=lambda band: band != PLAN.bands()[1]))
    tops = {patch.top for (patch,) in cut.asked}
    assert tops == {24, 48}, f"rows of patches that reach below {first.bottom}"


def test_nan_pixel_stays_nan() -> None:
    whole = picture(PLAN)
    whole[:, 30, 40] = np.nan
    found = put_together(PLAN, list(stitch(PLAN, Cut(whole, 32), batch=4)))
    assert np.isnan(found[:, 30, 40]).all()
    assert np.isnan(found).sum() == PLAN.num_classes


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 90), (33, 7), (32, 32)])
def test_pictures_smaller_than_a_patch_are_stitched_too(height: int, width: int) -> None:
    plan = plan_stitch(height, width, patch_px=32, overlap_px=8, num_classes=2)
    whole = picture(plan)
    found = put_together(plan, list(stitch(plan, Cut(whole, 32), batch=4)))
    np.testing.assert_allclose(found, whole, atol=1e-6)


def test_predictions_in_another_order_are_refused() -> None:
    from unchoke.masks.stitch import blend_patches

    wrong = [([Box(24, 0, 32, 32)], noise([Box(24, 0, 32, 32)]))]
    with pytest.raises(ValueError, match=r"top=0.*top=24"):
        list(blend_patches(PLAN, PLAN.bands(), wrong))


@pytest.mark.parametrize("num_classes", [1, 2, 3, 8, 20])
def test_plan_below_limit_for_any_size(num_classes: int) -> None:
    plans = [plan_stitch(side, side, patch_px=256, overlap_px=64, num_classes=num_classes) for side in (5_000, 20_000, 200_000)]
    assert {plan.held_bytes for plan in plans} == {plans[0].held_bytes}
    assert plans[0].held_bytes <= 64 * 2**20
    assert plans[0].block_px in (256, 512)


def test_usual_strips_cost_about_five_per_cent_more_patches() -> None:
    plan = plan_stitch(20_000, 20_000, patch_px=256, overlap_px=64, num_classes=2)
    needed = len(plan_boxes(20_000, 20_000, size_px=256, overlap_px=64, edges="padded"))
    assert plan.strip_px == 4096
    assert 1 < count_patches(plan, plan.bands()) / needed < 1.08
