"""The list of claims: complete, told apart, and cheap to read."""

from __future__ import annotations

import subprocess
import sys

from errors import refused
from unchoke.tuning.claims.registry import CLAIMS, choose_claims

REPORTED = {
    "batched-tiles", "channels-last", "turbo-jpeg", "image-cache", "evaluation-batch", "path-cache", "head-only",
    "cached-evaluation", "handle-reuse", "parallel-tiling", "unordered-scheduling", "pinned-memory", "accelerator",
}  # fmt: skip


def test_every_reported_gain_has_a_range_above_one() -> None:
    assert {claim.name for claim in CLAIMS} == REPORTED
    assert len({claim.measure for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        low, high = claim.ratios
        assert low >= 1
        assert high is None or high > low
        assert claim.title and claim.reported and claim.timed


def test_claims_are_chosen_by_name_in_the_order_of_the_list() -> None:
    assert [claim.name for claim in choose_claims(["path-cache", "batched-tiles"])] == ["batched-tiles", "path-cache"]
    assert len(choose_claims(())) == len(CLAIMS)


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with refused("unknown-claim", "torch-compile", "batched-tiles"):
        choose_claims(["torch-compile"])


def test_list_of_claims_loads_nothing_heavy() -> None:
    heavy = ["torch", "timm", "rasterio", "simplejpeg", "cv2", "pydantic", "typer", "psutil"]
    code = f"import sys, unchoke.tuning.claims.run_claims; assert not [name for name in {heavy} if name in sys.modules]"
    subprocess.run([sys.executable, "-c", code], check=True)
