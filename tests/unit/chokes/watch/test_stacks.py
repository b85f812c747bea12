"""Which code is the user's, where it stands, and which stage a stack belongs to."""

from __future__ import annotations

import genericpath
import json.decoder
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import ImageFile

import unchoke
from unchoke.chokes.watch.stacks import _RULES, NOWHERE, STAGES, is_user_code, is_user_file, rule_of, stage_of, user_place

SITE = "/venv/lib/python3.11/site-packages"
STANDARD = Path(os.__file__).parent


@pytest.mark.parametrize(
    ("file", "main_file", "is_user"),
    [
        ("/home/me/train.py", "/home/me/train.py", True),
        ("/home/me/data/loading.py", "/home/me/train.py", True),
        (f"{SITE}/torch/nn/modules/module.py", "/home/me/train.py", False),
        ("/home/me/.venv/lib/python3.11/site-packages/timm/data.py", "/home/me/train.py", False),
        (f"{STANDARD}/genericpath.py", "/home/me/train.py", False),
        ("<frozen importlib._bootstrap>", "/home/me/train.py", False),
        ("<string>", "/home/me/train.py", False),
        ("<string>", None, True),
        (f"{SITE}/timm/examples/train.py", f"{SITE}/timm/examples/train.py", True),
        (f"{SITE}/timm/examples/data.py", f"{SITE}/timm/examples/train.py", True),
        (f"{SITE}/timm/models/vit.py", f"{SITE}/timm/examples/train.py", False),
        (f"{SITE}/alone.py", f"{SITE}/alone.py", True),
        (f"{SITE}/torch/nn/modules/module.py", f"{SITE}/alone.py", False),
        (sys.modules["unchoke.chokes.watch.stacks"].__file__, "/home/me/train.py", False),
    ],
)
def test_user_files_are_not_python_or_installed(file: str, main_file: str, is_user: bool) -> None:
    assert is_user_file(file, main_file) is is_user


def test_the_place_is_the_line_that_runs_now() -> None:
    file, line, function = user_place()
    assert (file, function) == (__file__, "test_the_place_is_the_line_that_runs_now")
    assert line == test_the_place_is_the_line_that_runs_now.__code__.co_firstlineno + 1


def test_a_library_in_between_is_passed_over() -> None:
    seen = []

    class Asking:
        def __fspath__(self) -> str:
            seen.append(user_place(2))
            return os.curdir

    assert genericpath.exists(Asking())  # type: ignore[arg-type]
    assert seen[0][2] == "test_a_library_in_between_is_passed_over"
    assert not is_user_code(genericpath.exists.__code__)


def test_without_user_code_it_is_nowhere() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(user_place).result() == NOWHERE


def test_functions_are_known_by_their_file_and_name() -> None:
    assert rule_of(genericpath.exists.__code__) == "stat"
    assert rule_of(ImageFile.ImageFile.load_prepare.__code__) == "decode"
    assert rule_of(json.decoder.JSONDecoder.decode.__code__) == "read"
    assert rule_of(np.load.__wrapped__.__code__ if hasattr(np.load, "__wrapped__") else np.load.__code__) == "read"
    assert rule_of(test_functions_are_known_by_their_file_and_name.__code__) is None


def test_every_rule_leads_to_a_stage() -> None:
    named = {stage for _, stages in _RULES for stage in ([stages] if isinstance(stages, str) else stages)}
    assert named - {"up to here"} <= set(STAGES)


def test_watcher_rules_name_existing_functions() -> None:
    root = Path(unchoke.__file__).parent.parent
    own = [(part, stages) for part, stages in _RULES if part.startswith("unchoke/")]
    assert len(own) == 6
    for part, stages in own:
        assert isinstance(stages, dict)
        source = (root / part).read_text()
        names = [name for text in stages.values() for name in text.split()]
        if part.endswith("hooks.py"):  # its timed functions are named by the kinds of calls that others ask it to time
            source = "".join(
                (root / "unchoke/chokes/watch" / f"{name}.py").read_text() for name in ("decoding", "reading", "file_calls")
            )
            assert all(f'"{name}"' in source for name in names)
        else:
            assert all(f"def {name}(" in source for name in names)


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
def test_innermost_known_function_decides_the_stage(rules: list[str | None], phase: str, runs_python: bool, stage: str) -> None:
    assert stage_of(rules, phase, runs_python=runs_python) == stage
