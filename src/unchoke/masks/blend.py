"""How patches that share pixels become one picture: each pixel is the weighted mean of the patches that cover it.

In: where patches begin along one axis. Out: what share each of them has in each pixel. The window is separable and the same for
rows and columns, so shares are worked out for one axis at a time and multiplied. No picture is touched here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def blend_profile(patch_px: int, overlap_px: int) -> NDArray[np.float64]:
    """The window along one axis: it rises as a raised cosine over the overlap, stays at one, and falls again; never zero."""
    if not 0 <= overlap_px < patch_px:
        raise ValueError(f"patches of {patch_px} px cannot share {overlap_px}")
    profile = np.ones(patch_px)
    if overlap_px:
        ramp = np.sin(np.pi / 2 * (np.arange(overlap_px) + 0.5) / overlap_px) ** 2
        profile[:overlap_px] *= ramp
        profile[patch_px - overlap_px :] *= ramp[::-1]
    return profile


def blend_window(patch_px: int, overlap_px: int) -> NDArray[np.float32]:
    """The weight of each pixel of a patch (p, p): most in the middle, least at the rim, where a network sees one side only."""
    profile = blend_profile(patch_px, overlap_px)
    return np.outer(profile, profile).astype(np.float32)


def blend_shares(starts: Sequence[int], *, patch_px: int, overlap_px: int) -> NDArray[np.float32]:
    """What share of a pixel each patch has along one axis: (number of patches, p). Shares of one pixel add up to one.

    Where one patch alone covers a pixel its share is exactly one, so that its values pass through unchanged.
    """
    profile = blend_profile(patch_px, overlap_px)
    total = np.zeros(max(starts) + patch_px)
    for start in starts:
        total[start : start + patch_px] += profile
    return np.stack([profile / total[start : start + patch_px] for start in starts]).astype(np.float32)
