"""From stacks to stages."""

from __future__ import annotations

import genericpath
import json.decoder

import numpy as np
import pytest
from PIL import ImageFile

from unchoke.chokes.watch.stack_stages import _RULES, STAGES, rule_of, stage_of


def test_functions_are_known_by_their_file_and_name() -> None:
    assert rule_of(genericpath.exists.__code__) == "stat"
    assert rule_of(ImageFile.ImageFile.load_prepare.__code__) == "decode"
    assert rule_of(json.decoder.JSONDecoder.decode.__code__) == "read"
    assert rule_of(np.load.__wrapped__.__code__ if hasattr(np.load, "__wrapped__") else np.load.__code__) == "read"
    assert rule_of(test_functions_are_known_by_their_file_and_name.__code__) is None


def test_every_rule_leads_to_a_stage() -> None:
    named = {stage for _, stages in _RULES for stage in ([stages] if isinstance(stages, str) else stages)}
    assert named - {"up to here"} <= set(STAGES)


@pytest.mark.parametrize(
    ("rules", "phase", "runs_python", "stage"),
    [
        ([None, "decode", "wait"], "getitem", False, "decode"),
        ([None, "up to here", "wait"], "getitem", False, "transform"),
        ([None, "up to here", "wait"], "getitem", True, "python"),
        (["stat", None, "up to here"], "getitem", False, "stat"),
        (["stat", None, "up to here"], "getitem", True, "python"),
        (["log", "read", "up to here"], "getitem", False, "read"),
        (["forward", None], "evaluate", False, "evaluate"),
        ([None, None], "step", False, "other"),
        ([], "collate", False, "collate"),
    ],
)
def test_the_innermost_known_function_decides_unless_it_is_only_where_the_thread_was_met(
    rules: list[str | None], phase: str, runs_python: bool, stage: str
) -> None:
    assert stage_of(rules, phase, runs_python=runs_python) == stage
