"""Which code is the user's, and where it stands."""

from __future__ import annotations

import genericpath
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from unchoke.chokes.watch.places import NOWHERE, is_user_code, is_user_file, user_place

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
        (sys.modules["unchoke.chokes.watch.places"].__file__, "/home/me/train.py", False),
    ],
)
def test_a_file_is_the_users_if_neither_python_nor_an_installer_put_it_there(file: str, main_file: str, is_user: bool) -> None:
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
