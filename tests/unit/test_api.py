"""The functions of `import unchoke`: there is one for each command, and none of them is hidden by a package of its name."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import unchoke

COMMANDS = [
    *("budget", "check", "demo", "doctor", "evaluate", "extract", "fit", "lint", "notebook", "predict", "report"),
    *("tile", "train", "tune"),
]
OF_TWO_WORDS = ["claims_run", "profile_tile", "profile_train", "profile_view", "segment_predict", "segment_train"]
PUBLIC = [*COMMANDS, *OF_TWO_WORDS, "detach", "export_run", "list_claims", "list_presets", "list_runs", "profile", "watch_run"]


def in_a_fresh_interpreter(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_public_functions_are_these() -> None:
    assert sorted(unchoke._EXPORTS) == sorted(PUBLIC)
    assert set(PUBLIC) <= set(dir(unchoke))


@pytest.mark.parametrize("name", PUBLIC)
def test_each_can_be_called_and_explains_itself(name: str) -> None:
    assert callable(getattr(unchoke, name))
    assert inspect.getdoc(getattr(unchoke, name))


def test_every_command_of_one_word_is_a_function() -> None:
    from unchoke.cli.main import app

    commands = {info.callback.__name__ for info in app.registered_commands if info.callback is not None}
    assert commands == set(COMMANDS)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="fitt"):
        unchoke.fitt  # noqa: B018


def test_a_name_means_the_same_whatever_was_imported() -> None:
    in_a_fresh_interpreter(
        "import unchoke\nbefore = unchoke.train\n"
        "import unchoke.training.heads.train_heads, unchoke.reports.console\n"
        "assert unchoke.train is before and callable(before) and callable(unchoke.report)"
    )


def test_no_package_has_the_name_of_a_command() -> None:
    packages = {folder.parent.name for folder in Path(unchoke.__file__).parent.glob("*/__init__.py")}
    assert not packages & set(PUBLIC)
