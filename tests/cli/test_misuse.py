"""What cannot be read is told in three lines, and words of other tools lead to ours."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from unchoke.cli.misuse import _OURS, take_aliases
from unchoke.core.settings import OPTIONS

if TYPE_CHECKING:
    from tests.cli.conftest import Type


@pytest.mark.parametrize(
    ("typed", "taken", "renamed"),
    [
        ("fit photos --num-workers 2", "photos --workers 2", "--num-workers is called --workers"),
        ("fit photos --num_workers=2", "photos --workers=2", "--num_workers"),
        ("fit photos --batch_size 8", "photos --batch-size 8", "--batch_size"),
        ("fit photos -lr 0.1 -b 8", "photos --lr 0.1 --batch-size 8", "-lr is called --lr, -b is called --batch-size"),
        ("tile scenes --img-size 64", "scenes --tile-size 64", "--img-size"),
        ("train photos --device-type mps --output-dir o", "photos --device mps --out o", "--output-dir is called --out"),
        ("fit photos --label --num-workers", "photos --label --num-workers", ""),
        ("fit photos --early-stopping", "photos --early-stopping", ""),
    ],
)
def test_words_of_other_tools_are_taken(typed: str, taken: str, renamed: str) -> None:
    import typer

    from unchoke.cli.main import app

    name, *words = shlex.split(typed)
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    found, replaced = take_aliases(command, words)
    assert shlex.join(found) == taken
    assert renamed in ", ".join(f"{theirs} is called {ours}" for theirs, ours in replaced.items())


def test_a_word_that_is_taken_is_said(unchoke: Type) -> None:
    answer = unchoke("fit", "nowhere", "--num-workers", "2", "--output-dir", "o")
    assert answer.stderr.startswith("note  --num-workers is called --workers, --output-dir is called --out here\n")
    assert "[no-such-file]" in answer.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("fit photos --epohcs 3", "unchoke fit photos --epochs 3"),
        ("fit photos --resume", "unchoke fit photos"),
        ("fit photos --epohcs 3 --checkpoint w.pt --resume", "unchoke fit photos --epochs 3 --weights w.pt"),
        ("fti photos", "unchoke fit photos"),
        ("runs lst", "unchoke runs list"),
    ],
)
def test_word_that_is_no_option(unchoke: Type, typed: str, meant: str) -> None:
    answer = unchoke(*shlex.split(typed))
    assert answer.code == 2
    error, why, try_ = (line.split(maxsplit=1) for line in answer.stderr.strip().splitlines())
    assert (error[0], why[0], try_[0]) == ("error", "why", "try")
    assert try_[1] == meant


def test_all_unknown_options_are_said_at_once(unchoke: Type) -> None:
    answer = unchoke("fit", "photos", "--epohcs", "3", "--amp", "--frobnicate")
    assert "--epohcs, --amp, --frobnicate" in answer.stderr
    assert "it takes f32, bf16 or f16" in answer.stderr and "no option is spelt like it" in answer.stderr


def test_word_with_other_values_is_not_replaced(unchoke: Type) -> None:
    answer = unchoke("train", "photos", "--grad-accum", "4")
    assert answer.code == 2
    assert "--sub-batch" in answer.stderr
    assert "unchoke train --help-all" in answer.stderr


def test_option_of_another_command(unchoke: Type) -> None:
    assert "`unchoke fit`" in unchoke("predict", "exp_1", "photos", "--epochs", "4").stderr


@pytest.mark.parametrize(
    ("typed", "commands"),
    [
        ("extract photos --log mlflow", ["`unchoke fit`", "`unchoke train`", "`unchoke segment train`"]),
        ("tile scenes --level 0.8", ["`unchoke predict`"]),
    ],
)
def test_option_of_another_command_is_no_typo(unchoke: Type, typed: str, commands: list[str]) -> None:
    answer = unchoke(*shlex.split(typed))
    assert answer.code == 2
    assert all(command in answer.stderr for command in commands)


def test_wrong_value(unchoke: Type) -> None:
    answer = unchoke("fit", "photos", "--batch-size", "many")
    assert answer.code == 2
    assert "'many'" in answer.stderr
    assert OPTIONS["batch_size"].help.partition(".")[0] in answer.stderr


def test_misuse_is_json_where_asked_for(unchoke: Type) -> None:
    answer = unchoke("fit", "photos", "--frobnicate", "--json")
    assert (answer.code, answer.stderr) == (2, "")
    told = json.loads(answer.stdout)
    assert (told["command"], told["ok"], told["error"]["exit_code"]) == ("fit", False, 2)


def test_words_of_other_tools_lead_to_options() -> None:
    import typer

    from unchoke.cli.main import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    nested = [inner for one in commands.values() for inner in getattr(one, "commands", {}).values()]
    known = {name for command in [*commands.values(), *nested] for one in command.params for name in one.opts}
    assert set(_OURS.values()) <= known
