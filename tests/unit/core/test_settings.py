"""The table of settings: every entry says all there is to say, and values are checked against it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from errors import refused
from unchoke.core.errors import SettingsError
from unchoke.core.remembered import resolve_settings
from unchoke.core.settings import (
    OPTIONS,
    Group,
    Settings,
    as_options,
    explained_by,
    help_of,
    settings_where,
    validate,
)
from unchoke.core.workspace import Workspace

COMMANDS = {
    *("fit", "train", "tune", "encoders", "extract", "check", "curate", "profile_train"),
    *("tile", "profile_tile", "segment_train", "budget", "doctor"),
}


def test_every_setting_has_help_heading_and_commands() -> None:
    for name, option in OPTIONS.items():
        assert option.help.endswith("."), name
        assert option.group in get_args(Group), name
        assert option.commands, name
        assert set(option.commands) <= COMMANDS, name
        assert "(default" not in option.help or getattr(Settings(), name) is None, f"{name}: its default is added"


def test_data_is_explained_by_what_the_command_is_about() -> None:
    assert help_of("data", "fit").startswith("Class folders")
    assert help_of("data", "tile").startswith("Band files")


def test_experiment_settings_tell_runs_apart() -> None:
    assert {"lr", "head", "epochs", "train_precision"} < set(settings_where(lambda option: option.tells_runs_apart))
    assert not {"memory", "devices", "profile", "overlap", "lr"} & set(settings_where(lambda option: option.remembered))
    assert not {"memory", "devices", "profile"} & set(settings_where(lambda option: option.tells_runs_apart))


def test_a_copy_is_plain_values() -> None:
    settings = validate({"sums": ("a=b+c",), "long": "n, v", "epochs": 20, "lr": 1})
    assert settings.given() == {"sums": {"a": ["b", "c"]}, "long": ["n", "v"], "lr": 1.0, "cut": "end"}
    assert replace(settings, epochs=3).to_dict()["epochs"] == 3


@pytest.mark.parametrize(
    ("typed", "cut"),
    [
        ({}, "blocks"),
        ({"head": "mlp"}, "blocks"),
        ({"tiles": "2x2"}, "end"),
        ({"input": ("NDVI",)}, "end"),
        ({"cut": "-4"}, "-4"),
    ],
)
def test_cut_default_by_tiles_and_targets(typed: dict[str, object], cut: str) -> None:
    assert validate(typed).cut == cut
    assert validate({"streams": 2, "cut": "blocks"}).cut == "blocks"


def test_wrong_values_are_all_listed_at_once() -> None:
    with refused("bad-settings") as caught:
        validate({"epochs": 0, "views": 65, "precision": "f8", "val_share": 1.0, "lr": -1})
    what = caught.value.what
    assert "5 settings" in what
    assert all(part in what for part in ("epochs", "got 0", "views", "got 65", "'f8'", "val_share", "lr"))
    assert all(option in caught.value.try_ for option in ("--epochs", "--val-share"))


@pytest.mark.parametrize(
    ("name", "typed", "meant"),
    [
        ("sums", ("GDM = green + clover", "total=GDM+dead"), {"GDM": ("green", "clover"), "total": ("GDM", "dead")}),
        ("sums", "twice=a+a", {"twice": ("a", "a")}),
        ("target_weights", ("a=0.5", "b=c=2"), {"a": 0.5, "b=c": 2.0}),
        ("fold", "2", 2),
        ("fold", " All", "all"),
        ("cut", -4, "-4"),
        ("cut", "None", "none"),
        ("tiles", "2×3", "2x3"),
        ("memory", 4_000_000_000, "4000000000"),
        ("memory", " 3.2GiB", "3.2GiB"),
    ],
)
def test_what_has_a_form_of_its_own_is_read(name: str, typed: Any, meant: Any) -> None:
    assert getattr(validate({name: typed}), name) == meant


NONSENSE: list[tuple[str, Any]] = [
    *(("sums", wrong) for wrong in ("GDM", "=a+b", "GDM=", "GDM=a+", ("a=b", "c"), {"GDM": []}, {"GDM": "a+b"})),
    *(("target_weights", wrong) for wrong in ("a", "a=", "a=much", "a=-1", "a=nan", "a=inf")),
    *(("fold", wrong) for wrong in (-1, "-1", "some", 1.5, True)),
    *(("cut", wrong) for wrong in ("4", "-0", "start", "-1.5", 0)),
    *(("tiles", wrong) for wrong in ("2", "0x2", "2x", "axb", "100x1")),
    *(("memory", wrong) for wrong in ("much", "0", "-4GB", "4 elephants", "0.5")),
    *(("ema", wrong) for wrong in (1, -0.1)),
    *(("layer_decay", wrong) for wrong in (0, 1.1)),
    *((name, wrong) for name in ("lr", "mixup", "warmup", "clip", "checkpoint_every") for wrong in ("nan", "inf", -1, 1e12)),
    *(("sweep", wrong) for wrong in (-1, 1_000_000_000, 10**30)),
    *((name, 10**30) for name in ("epochs", "batch_size", "job_size", "workers", "folds", "patience", "block_px")),
    ("memory", "9" * 400 + "GB"),
    ("streams", 0),
    ("devices", 0),
    ("sub_batch", 0),
    ("input_px", 1),
    ("checkpoint_every", -1),
    ("warmup", -1),
    ("augment", "wild"),
    ("train_precision", "int8"),
    ("batch_norm", "thawed"),
    ("fusion", "sum"),
    ("cache", "cloud"),
    ("classes", "a,a,b"),
    ("classes", "a,,b"),
    ("classes", ("a", "")),
]
OPTION = {"sums": "sum", "target_weights": "target-weight"}


def test_nonsense_is_refused_by_name() -> None:
    taken: list[str] = []
    for name, typed in NONSENSE:
        try:
            validate({name: typed})
        except SettingsError as error:
            option = "--" + OPTION.get(name, name.replace("_", "-"))
            if error.code == "bad-settings" and name in error.what and "value error" not in error.what and option in error.try_:
                continue
        taken.append(f"{name}={typed!r}")
    assert taken == []


def test_memory_is_a_number_of_bytes_when_it_is_needed() -> None:
    assert [Settings(memory=text).memory_bytes for text in ("4GB", "3.2GiB", "512MB", "1000")] == [
        4_000_000_000,
        int(3.2 * 2**30),
        512_000_000,
        1000,
    ]
    assert Settings().memory_bytes is None


def test_with_all_folds_the_first_is_the_test_set_first() -> None:
    assert [validate({"folds": 3, "fold": fold}).test_fold for fold in ("all", 2)] == [0, 2]


def test_an_unknown_option_gets_the_nearest_known_one() -> None:
    with refused("bad-settings") as caught:
        validate({"epoch": 3})
    assert "epoch" in caught.value.what
    assert caught.value.try_.startswith("unchoke fit --help-all") and caught.value.try_.endswith("--epochs")


EVERYTHING: dict[str, Any] = {
    "images": ("a b", "c"),
    "id": "image id",
    "target": ("x", "y"),
    "long": ("name", "value"),
    "input": ("NDVI",),
    "val_share": 0.2,
    "folds": 5,
    "fold": "all",
    "positive": True,
    "expect": "2000x1000 rgb",
    "sums": {"x": ("y", "z"), "v": ("x", "x")},
    "target_weights": {"x": 0.1, "a=b": 2.0},
    "cut": "-4",
    "input_px": 518,
    "streams": 2,
    "tiles": "2x2",
    "cache": "none",
    "workers": 0,
    "views": 2,
    "fusion": "film",
    "epochs": 3,
    "lr": 1e-05,
    "ema": 0.0,
    "warmup": 0.5,
    "augment": "strong",
    "seed": -1,
    "memory": "4GB",
    "sub_batch": 2,
    "grad_ckpt": True,
    "compile": False,
    "channels_last": False,
    "devices": 2,
}


def typed_again(words: list[str]) -> dict[str, Any]:
    """What the command line makes of the words."""
    import typer
    from typer.testing import CliRunner

    from unchoke.cli.options import command
    from unchoke.cli.showing import PlainResult

    seen: dict[str, Any] = {}
    app = typer.Typer()

    @command(app, "fit")
    def fit(**typed: Any) -> Any:
        seen.update(typed)
        return PlainResult({}, "")

    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return seen


def test_options_typed_again_are_the_same_settings(tmp_path: Path) -> None:
    other: list[list[str]] = []
    for names in [list(EVERYTHING), *([name] for name in EVERYTHING)]:
        settings = validate({"data": "photos", **{name: EVERYTHING[name] for name in names}})
        words = as_options(settings)
        if resolve_settings(Workspace(tmp_path), typed_again(["photos", *words]))[0] != settings:
            other.append(words)
    assert other == []


def test_options_show_only_what_differs() -> None:
    assert as_options(Settings(data="photos", epochs=20)) == []
    settings = Settings(cut="-4", grad_ckpt=False, positive=True, sums={"a": ("b", "c")}, long=("n", "v"))
    assert as_options(settings) == ["--long", "n,v", "--positive", "--sum", "a=b+c", "--cut", "-4", "--no-grad-ckpt"]


@pytest.mark.parametrize(
    ("wrong", "command"), [({"tile_size": 8}, "tile"), ({"decoder": "deeplab"}, "segment train"), ({"epochs": 0}, "fit")]
)
def test_wrong_value_names_a_command_with_the_option(wrong: dict[str, Any], command: str) -> None:
    with refused("bad-settings") as caught:
        validate(wrong)
    assert caught.value.what.startswith("1 setting cannot be used")
    assert caught.value.try_.startswith(f"unchoke {command} --help-all")


def test_error_points_to_the_commands_own_help() -> None:
    with refused("bad-settings") as caught:
        validate({"epochs": 0})
    assert explained_by(caught.value, "profile train").try_.startswith("unchoke profile train --help-all")
    assert explained_by(caught.value, "tile").try_.startswith("unchoke profile train"), "tile has no --epochs"
