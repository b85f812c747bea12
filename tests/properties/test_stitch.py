"""Cut, then stitch: the picture comes back, whatever its size, the patches, the strips, the bands, and what was done before."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import mask_run
from unchoke.core.boxes import Box
from unchoke.masks.stitch import BandValues, StitchPlan, stitch


@st.composite
def plans(draw: st.DrawFn) -> StitchPlan:
    patch_px = draw(st.integers(1, 20))
    sizes = [draw(st.integers(1, 70)) for _ in range(4)]
    return StitchPlan(sizes[0], sizes[1], patch_px, draw(st.integers(0, patch_px - 1)), 2, sizes[2], sizes[3])


def cut(plan: StitchPlan, patches: list[Box]) -> BandValues:
    """What a picture of running numbers shows in each patch, beyond its rim too."""
    rows, columns = np.arange(plan.height + 20), np.arange(plan.width + 20)
    whole = np.stack([np.add.outer(100 * rows, columns), np.add.outer(rows % 7, columns % 5)]).astype(np.float32)
    return np.stack([whole[:, one.top : one.bottom, one.left : one.right] for one in patches])


def disagree(plan: StitchPlan, patches: list[Box]) -> BandValues:
    return np.stack([cut(plan, [one])[0] * (1 + (one.top * 31 + one.left) % 11) for one in patches])


@given(plan=plans(), batch=st.integers(1, 9))
@settings(max_examples=75, deadline=None)
def test_cut_then_stitched_is_the_picture(plan: StitchPlan, batch: int) -> None:
    whole = cut(plan, [Box(0, 0, plan.height, plan.width)])[0]
    for band, values in stitch(plan, lambda patches: cut(plan, patches), batch=batch):
        np.testing.assert_allclose(values, whole[:, band.top : band.bottom, band.left : band.right], rtol=2e-6)


@given(plan=plans(), batch=st.integers(1, 9), data=st.data())
@settings(max_examples=75, deadline=None)
def test_stitch_after_interruption_equals_one_in_memory(plan: StitchPlan, batch: int, data: st.DataObject) -> None:
    bands = plan.bands()
    done = set(data.draw(st.lists(st.sampled_from(bands), max_size=8)))
    whole = mask_run.stitch_in_ram(plan, lambda patches: disagree(plan, patches), batch=3)
    found = list(stitch(plan, lambda patches: disagree(plan, patches), batch=batch, done=done.__contains__))
    assert [band for band, _ in found] == [band for band in bands if band not in done]
    for band, values in found:
        np.testing.assert_array_equal(values, whole[:, band.top : band.bottom, band.left : band.right])
