"""What was typed, over what the workspace remembers, over the defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unchoke.core.errors import UsageError
from unchoke.core.settings import TRAINED_PART, Settings, as_options, load_remembered, remember, resolve_settings, validate
from unchoke.core.workspace import Workspace


def test_typed_beats_remembered_beats_default(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    remember(workspace, Settings(data="photos", epochs=7, images=("a", "b"), label="dx"))
    settings, in_force = resolve_settings(workspace, {"data": "photos", "epochs": 9, "label": None, "images": ()})
    assert (settings.epochs, settings.label, settings.images, settings.job_size) == (9, "dx", ("a", "b"), 64)
    assert sorted(in_force) == ["images", "label"]


def test_without_data_the_remembered_data_is_meant(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    remember(workspace, Settings(data="photos", seed=3))
    settings, _ = resolve_settings(workspace, {"data": None})
    assert (settings.data, settings.seed) == ("photos", 3)


@pytest.mark.parametrize(("data", "seed"), [("photos/", 3), (Path("photos"), 3), ("./photos", 3), ("others", 0)])
def test_remembered_settings_apply_to_the_same_data_only(tmp_path: Path, data: str | Path, seed: int) -> None:
    workspace = Workspace(tmp_path)
    remember(workspace, Settings(data="photos", seed=3))
    settings, in_force = resolve_settings(workspace, {"data": data})
    assert (settings.seed, in_force) == (seed, {"seed": "remembered in unchoke.toml"} if seed else {})


def test_what_describes_data_and_frozen_part_survives_being_remembered(tmp_path: Path) -> None:
    columns = {"long": ("name", "value"), "target": ("x", "y=z"), "input": ("NDVI", "height"), "folds": 5, "fold": "all"}
    targets = {"sums": {"x": ("y=z", "w")}, "target_weights": {"x": 0.2, "y=z": 0.5}, "positive": True}
    frozen = {"engine": "openvino", "cut": "-4", "input_px": 518, "streams": 2, "tiles": "2x3", "cache": "disk", "seed": 3}
    settings = validate({"data": 'da"ta\\ü', "images": ("a b", "c,d"), **columns, **targets, **frozen})
    remember(Workspace(tmp_path), settings)
    assert resolve_settings(Workspace(tmp_path), {})[0] == settings


def test_options_of_the_trained_part_are_not_remembered_unless_written_by_hand(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    remember(workspace, Settings(data="photos", head="mlp", lr=0.003, sweep=4, memory="4GB", grad_ckpt=True, devices=2))
    assert load_remembered(workspace) == {"data": "photos"}
    workspace.settings_file.write_text('data = "photos"\nhead = "linear"\n')
    remember(workspace, resolve_settings(workspace, {"lr": 0.1, "views": 1})[0])
    assert load_remembered(workspace) == {"data": "photos", "views": 1, "head": "linear"}
    remember(workspace, resolve_settings(workspace, {"head": "mlp", "views": 2})[0])
    assert load_remembered(workspace) == {"data": "photos", "views": 2, "head": "linear"}


def test_every_setting_of_the_trained_part_exists() -> None:
    assert set(TRAINED_PART) < set(Settings.model_fields)


BY_HAND = """\
# measured in grams
data = "train.csv"
positive = true
cut = -4          # a number will do
epochs = 7
streams = 1

[sums]
GDM_g = ["Dry_Green_g", "Dry_Clover_g"]  # what cattle eat
Dry_Total_g = ["GDM_g", "Dry_Dead_g"]

[target_weights]
GDM_g = 0.2
Dry_Total_g = 0.5
"""


def test_a_file_written_by_hand_is_honoured_and_kept_with_its_comments(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.settings_file.write_text(BY_HAND)
    settings, in_force = resolve_settings(workspace, {"data": "train.csv", "epochs": 9, "lr": 0.1})
    assert settings.sums == {"GDM_g": ("Dry_Green_g", "Dry_Clover_g"), "Dry_Total_g": ("GDM_g", "Dry_Dead_g")}
    assert (settings.target_weights, settings.positive, settings.cut) == ({"GDM_g": 0.2, "Dry_Total_g": 0.5}, True, "-4")
    assert set(in_force) == {"positive", "cut", "streams", "sums", "target_weights"}
    remember(workspace, settings)
    assert workspace.settings_file.read_text() == BY_HAND
    remember(workspace, resolve_settings(workspace, {"tiles": "2x2"})[0])
    changed = load_remembered(workspace)
    assert (changed["tiles"], changed["epochs"], changed["streams"], changed["cut"]) == ("2x2", 7, 1, "-4")
    assert changed["sums"]["GDM_g"] == ["Dry_Green_g", "Dry_Clover_g"]


def test_only_what_differs_from_the_defaults_is_remembered(tmp_path: Path) -> None:
    remember(Workspace(tmp_path), Settings(data="photos", epochs=20, views=2))
    assert load_remembered(Workspace(tmp_path)) == {"data": "photos", "views": 2}
    assert load_remembered(Workspace(tmp_path / "new")) == {}


def test_paths_from_python_become_text() -> None:
    settings, _ = resolve_settings(Workspace(Path("nowhere")), {"data": Path("m.csv"), "images": [Path("a"), "b"]})
    assert (settings.data, settings.images) == ("m.csv", ("a", "b"))


def test_wrong_values_are_all_listed_at_once() -> None:
    with pytest.raises(UsageError) as caught:
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


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        *(("sums", wrong) for wrong in ("GDM", "=a+b", "GDM=", "GDM=a+", ("a=b", "c"), {"GDM": []}, {"GDM": "a+b"})),
        *(("target_weights", wrong) for wrong in ("a", "a=", "a=much", "a=-1", "a=nan", "a=inf")),
        *(("fold", wrong) for wrong in (-1, "-1", "some", 1.5, True)),
        *(("cut", wrong) for wrong in ("4", "-0", "start", "-1.5", 0)),
        *(("tiles", wrong) for wrong in ("2", "0x2", "2x", "axb", "100x1")),
        *(("memory", wrong) for wrong in ("much", "0", "-4GB", "4 elephants", "0.5")),
        *(("ema", wrong) for wrong in (1, -0.1)),
        *(("layer_decay", wrong) for wrong in (0, 1.1)),
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
    ],
)
def test_what_makes_no_sense_is_refused_by_name(name: str, typed: Any) -> None:
    with pytest.raises(UsageError) as caught:
        validate({name: typed})
    assert name in caught.value.what
    assert "value error" not in caught.value.what
    assert "--" + {"sums": "sum", "target_weights": "target-weight"}.get(name, name.replace("_", "-")) in caught.value.try_


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
    with pytest.raises(UsageError) as caught:
        validate({"epoch": 3})
    assert "epoch" in caught.value.what
    assert caught.value.try_ == "unchoke fit --help, which explains --epochs"


def test_an_unknown_key_in_the_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "unchoke.toml").write_text('data = "photos"\nepocs = 3\nlable = "x"\n')
    with pytest.raises(UsageError) as caught:
        resolve_settings(Workspace(tmp_path), {})
    assert "epocs, lable" in caught.value.what


@pytest.mark.parametrize("content", [b"data = [", b"data = \xff\xfe"])
def test_a_broken_file_is_named_with_its_reason(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "unchoke.toml").write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read"):
        load_remembered(Workspace(tmp_path))


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

    from unchoke.cli.options import DATA, DEVICE, FEATURES, MACHINE, TRAINED, takes

    seen: dict[str, Any] = {}
    app = typer.Typer()

    @app.command()
    @takes(*DATA, *FEATURES, *TRAINED, *DEVICE, *MACHINE)
    def fit(typed: dict[str, Any]) -> None:
        seen.update(typed)

    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return seen


@pytest.mark.parametrize("names", [list(EVERYTHING), *([name] for name in EVERYTHING)], ids=lambda names: names[-1])
def test_settings_written_as_options_are_the_same_settings_when_typed(names: list[str], tmp_path: Path) -> None:
    settings = validate({"data": "photos", **{name: EVERYTHING[name] for name in names}})
    words = as_options(settings)
    assert resolve_settings(Workspace(tmp_path), typed_again(["photos", *words]))[0] == settings


def test_options_show_only_what_differs() -> None:
    assert as_options(Settings(data="photos", epochs=20)) == []
    settings = Settings(cut="-4", grad_ckpt=False, positive=True, sums={"a": ("b", "c")}, long=("n", "v"))
    assert as_options(settings) == ["--long", "n,v", "--positive", "--sum", "a=b+c", "--cut", "-4", "--no-grad-ckpt"]


@pytest.mark.parametrize(
    ("wrong", "command"), [({"tile_size": 8}, "tile"), ({"decoder": "deeplab"}, "segment train"), ({"epochs": 0}, "fit")]
)
def test_a_wrong_value_is_told_once_and_names_a_command_that_has_the_option(wrong: dict[str, Any], command: str) -> None:
    with pytest.raises(UsageError) as caught:
        validate(wrong)
    assert caught.value.what.startswith("1 setting cannot be used")
    assert caught.value.try_.startswith(f"unchoke {command} --help")


def test_settings_of_tiles_are_those_the_command_has() -> None:
    from unchoke.cli.options import DECODER, PATCHES, SCENES, TILES
    from unchoke.core.settings import OF_SCENES, OF_TILES

    assert OF_TILES == TILES
    assert set(OF_SCENES) <= {*SCENES, *PATCHES, *DECODER}
