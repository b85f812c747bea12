"""From labelled scenes to a recorded run that draws masks: judged on stitched masks, never done twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio

from errors import refused
from unchoke.core.events import Chosen, Event, Note, Progress, ignore
from unchoke.curation.curate import curate
from unchoke.exports.export_model import export
from unchoke.masks.pixel_trees import PixelScorer
from unchoke.masks.segment_predict import segment_predict
from unchoke.masks.segment_train import SegmentResult, segment_train
from unchoke.masks.trained_segmenter import load_segmenter
from unchoke.runs.lookup import best_run, list_runs, show_run
from unchoke.training.checkpoints import load_checkpoint
from unchoke.training.evaluate import evaluate
from unchoke.training.export_run import export_run

if TYPE_CHECKING:
    from tests.conftest import Once
    from tests.unit.commands.conftest import Kept

pytestmark = pytest.mark.usefixtures("one_torch_thread")

TINY = "test_resnet"
WITHOUT_TORCH = """
import runpy, sys
sys.modules["torch"] = sys.modules["unchoke"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SIDE, NUM_SCENES = 64, 8
PLACE = rasterio.Affine(10, 0, 500_000, 0, -10, 5_200_000)


def make_scenes(folder: Path) -> Path:
    """Eight scenes of three bands, side by side on the map, each with a bright disc: class 1 of its label."""
    for number in range(NUM_SCENES):
        random = np.random.default_rng(number)
        rows, columns = np.mgrid[:SIDE, :SIDE]
        disc = np.hypot(rows - random.uniform(20, 44), columns - random.uniform(20, 44)) < 16
        bands = 1000 + np.stack([1500 * disc, -400 * disc, 0 * disc]) + random.integers(0, 150, (3, SIDE, SIDE))
        place = {"crs": "EPSG:32633", "transform": PLACE @ rasterio.Affine.translation(2 * SIDE * number, 0)}
        for name, values in (("scenes", bands.astype(np.uint16)), ("labels", disc[None].astype(np.uint8))):
            file = folder / name / f"s{number}.tif"
            file.parent.mkdir(parents=True, exist_ok=True)
            profile = {"driver": "GTiff", "count": len(values), "height": SIDE, "width": SIDE, "dtype": values.dtype}
            with rasterio.open(file, "w", **profile, **place) as raster:
                raster.write(values)
    return folder


@pytest.fixture(scope="session")
def data(once: Once) -> Path:
    """Shared: to be read only."""
    return once("commands-mask-scenes", make_scenes)


def run(data: Path, out: Path, weights: Path, *, heard: list[Event] | None = None, **options: Any) -> SegmentResult:
    typed: dict[str, Any] = {
        "label": str(data / "labels"),
        "encoder": TINY,
        "weights": str(weights),
        "strides": "4,8",
        "patch_size": 32,
        "overlap": 8,
        "workers": 1,
        "engine": "torch",
        "precision": "f32",
        "epochs": 6,
        "lr": 5e-3,
        "classes": "ground,disc",
    }
    given = {name: value for name, value in {**typed, **options}.items() if value is not None}
    listen = heard.append if heard is not None else lambda event: None
    result = segment_train(str(data / "scenes"), out=out, on_event=listen, **given)
    assert isinstance(result, SegmentResult)
    return result


Trained = tuple[SegmentResult, list[Event]]


@pytest.fixture(scope="module")
def trained(data: Path, tiny_weights: Path, kept: Kept) -> Trained:
    """An undisturbed run with a baseline. Shared: to be read only."""

    def build(folder: Path) -> Trained:
        heard: list[Event] = []
        return run(data, folder / "out", tiny_weights, heard=heard, baseline="b1 > 1800"), heard

    found: Trained = kept("mask-run", build)
    return found


def test_it_learns_and_is_judged_on_scenes_it_did_not_see(trained: Trained) -> None:
    record = trained[0].record
    assert record["metrics"]["test"]["mean_iou"]["value"] > 0.75
    assert set(record["metrics"]["test"]) == {
        "mean_iou", "macro_f1", "pixel_accuracy", "iou/ground", "f1/ground", "iou/disc", "f1/disc",
    }  # fmt: skip
    num_test = sum(map(sum, record["confusion"]["test"]))
    assert num_test % SIDE**2 == 0, "whole scenes are judged, every pixel once"
    assert [row["name"] for row in record["per_class"]["test"]] == ["ground", "disc"]


def test_a_threshold_is_judged_on_the_same_pixels(trained: Trained) -> None:
    baseline = trained[0].record["baseline"]
    assert (baseline["name"], baseline["test"]["class"]) == ("b1 > 1800", "disc")
    assert baseline["test"]["iou"] == pytest.approx(1)
    assert all(part in trained[0].to_text() for part in ("b1 > 1800", "100.0 %"))


def test_single_pixel_baselines_use_the_same_pixels(trained: Trained) -> None:
    result, heard = trained
    trees, index = result.record["pixel_baselines"]
    assert trees["name"].startswith("gradient-boosted trees") and "b1" in index["name"]
    assert trees["test"]["iou"] > 0.9 and index["test"]["iou"] > 0.9
    assert sum(map(sum, trees["test"]["confusion"])) == sum(map(sum, result.record["confusion"]["test"]))
    assert trees["name"].split()[0] in result.to_text()
    assert result.to_dict()["pixel_baselines"][0]["name"] == trees["name"]
    told = {event.choice.name: event.choice.value for event in heard if isinstance(event, Chosen)}
    assert told["decoder_sees"] == "maps, bands, trees"


def test_train_patches_are_scored_by_out_of_fold_trees(data: Path, tmp_path: Path, tiny_weights: Path) -> None:
    """Labels are noisy, so that other trees say other things."""
    noisy = Path(shutil.copytree(data, tmp_path / "noisy"))
    for number, file in enumerate(sorted((noisy / "labels").iterdir())):
        with rasterio.open(file, "r+") as raster:
            label = raster.read(1)
            raster.write(np.where(np.random.default_rng(number).random(label.shape) < 0.3, 1 - label, label), 1)
    result = run(noisy, tmp_path / "out", tiny_weights, epochs=1)
    folder = result.workspace / "patches"
    (file,), (pixels,) = folder.glob("scores-*.npy"), folder.glob("pixels-*.npy")
    scorer = PixelScorer.from_dict(load_checkpoint(folder / f"{file.stem}-trees.pt"))
    kept = zip(np.load(pixels), np.load(file), strict=True)
    same = [np.array_equal(scorer.scores(bands), scores) for bands, scores in kept]
    splits = result.record["data"]["splits"]
    assert sum(same) == splits["val"] + splits["test"]
    assert load_segmenter(result.folder).scorer is not None


def test_without_scikit_learn_it_trains_all_the_same(
    data: Path, tmp_path: Path, tiny_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    heard: list[Event] = []
    result = run(data, tmp_path / "out", tiny_weights, epochs=1, heard=heard)
    assert any(isinstance(event, Note) and "unchoke[segment]" in event.text for event in heard)
    assert not any(row["name"].startswith("gradient") for row in result.record["pixel_baselines"])
    assert load_segmenter(result.folder).scorer is None


def test_report_shows_twenty_stitched_pieces(trained: Trained) -> None:
    result = trained[0]
    assert len(result.record["gallery"]) >= 20
    page = result.report.read_text(encoding="utf-8")
    assert page.count("data:image/") >= 100


def test_choices_are_told_and_progress_counts_patches(trained: Trained) -> None:
    heard = trained[1]
    chosen = {event.choice.name for event in heard if isinstance(event, Chosen)}
    assert {"decoder", "dice", "class_weights", "selection_metric", "splits", "feature_cache"} <= chosen
    assert any(isinstance(event, Progress) and event.stage == "train" and event.unit == "patches" for event in heard)


def test_it_is_a_run_like_any_other(trained: Trained) -> None:
    result = trained[0]
    listed = list_runs(out=result.workspace)
    assert [row["name"] for row in listed] == ["exp_1"]
    assert best_run(out=result.workspace).run == "exp_1"
    assert "gallery" not in show_run("latest", out=result.workspace).to_dict()
    assert (result.workspace / "patches" / "patch_manifest.v001.csv").is_file()
    table = (result.folder / "predictions.csv").read_text().splitlines()
    assert table[0].startswith('"sample_id","split","loss","mean_iou"')
    assert len(table) - 1 == sum(result.record["data"]["splits"][split] for split in ("val", "test"))


def test_the_command_of_the_record_gives_the_same_run(trained: Trained) -> None:
    words = trained[0].record["command"].split()
    assert words[:3] == ["unchoke", "segment", "train"]
    assert "--decoder" not in words
    assert "--epochs" in words


def test_the_same_command_again_finds_it_done(data: Path, tmp_path: Path, tiny_weights: Path, trained: Trained) -> None:
    out = Path(shutil.copytree(trained[0].workspace, tmp_path / "out"))
    again = run(data, out, tiny_weights, baseline="b1 > 1800")
    assert again.already_done
    assert again.run == "exp_1"
    other = run(data, out, tiny_weights, epochs=1, decoder="unet")
    assert not other.already_done
    assert other.run == "exp_2"


def test_the_whole_network_trains_on_pixels(data: Path, tmp_path: Path, tiny_weights: Path) -> None:
    result = run(data, tmp_path / "out", tiny_weights, cut="none", epochs=2)
    assert result.record["training"]["num_turns"] == 8
    assert result.record["encoder"]["fingerprint"] == ""
    assert not (tmp_path / "out" / "features" / "jobs_queue.csv").exists()
    masks = segment_predict("latest", data / "scenes" / "s0.tif", out=tmp_path / "out", on_event=lambda event: None)
    assert masks.ok


def test_turned_views_are_cached_and_shown(data: Path, tmp_path: Path, tiny_weights: Path) -> None:
    result = run(data, tmp_path / "out", tiny_weights, views=2, epochs=1)
    assert result.record["training"]["num_turns"] == 3
    assert result.record["encoder"]["num_augmented"] == 2


def test_an_exported_run_draws_the_same_mask_elsewhere(data: Path, tmp_path: Path, trained: Trained) -> None:
    export_run("exp_1", tmp_path / "copy", out=trained[0].workspace, on_event=lambda event: None)
    options: dict[str, Any] = {"on_event": lambda event: None, "probabilities": False}
    here = segment_predict("exp_1", data / "scenes" / "s1.tif", out=trained[0].workspace, to=tmp_path / "here", **options)
    there = segment_predict(tmp_path / "copy", data / "scenes" / "s1.tif", to=tmp_path / "there", **options)
    assert here.ok
    assert there.ok
    assert (tmp_path / "here" / "s1_classes.tif").read_bytes() == (tmp_path / "there" / "s1_classes.tif").read_bytes()


def test_commands_for_classes_and_values_refuse_it(trained: Trained) -> None:
    with refused("run-draws-masks", "exp_1"):
        evaluate("exp_1", out=trained[0].workspace)


def test_a_cut_in_between_is_refused(data: Path, tmp_path: Path, tiny_weights: Path) -> None:
    with refused("option-not-for-masks", "--cut -2"):
        run(data, tmp_path / "out", tiny_weights, cut="-2")


@pytest.mark.parametrize("unused", [{"mixup": 0.2}, {"grad_ckpt": True}, {"folds": 3}])
def test_option_without_use_for_masks_is_refused(data: Path, tmp_path: Path, tiny_weights: Path, unused: dict[str, Any]) -> None:
    with refused("option-not-for-masks", next(iter(unused)).replace("_", "-")):
        run(data, tmp_path / "out", tiny_weights, **unused)


def test_no_labels_at_all_is_refused(data: Path, tmp_path: Path, tiny_weights: Path) -> None:
    with refused("no-masks", "--label"):
        run(data, tmp_path / "out", tiny_weights, label=None)


def test_plain_result_has_what_other_runs_have(trained: Trained) -> None:
    plain = json.loads(json.dumps(trained[0].to_dict()))
    assert {"run", "workspace", "report", "metrics", "timings", "images_per_s", "memory", "baseline", "patches"} <= set(plain)
    assert plain["metrics"]["test"]["mean_iou"] == trained[0].record["metrics"]["test"]["mean_iou"]["value"]


def test_curate_names_the_scene_with_a_wrong_mask(data: Path, tmp_path: Path, tiny_weights: Path) -> None:
    moved = Path(shutil.copytree(data, tmp_path / "moved"))
    with rasterio.open(moved / "labels" / "s3.tif", "r+") as raster:
        raster.write(1 - raster.read())
    run(moved, tmp_path / "out", tiny_weights, epochs=1)
    found = curate(out=tmp_path / "out", on_event=ignore)
    assert (found.noun, found.num_photos) == ("scene", NUM_SCENES)
    first = found.findings[0]
    assert (first.kind, first.about) == ("scene", ("s3",))
    assert first.evidence["right_pixels"] < 0.5
    assert "8 scenes looked at" in found.to_text()


@pytest.mark.parametrize("format_", ["openvino", pytest.param("onnx", marks=pytest.mark.campaign)])
def test_exported_model_draws_the_same_masks_without_torch(format_: str, trained: Trained, data: Path, tmp_path: Path) -> None:
    out, scene = trained[0].workspace, data / "scenes" / "s3.tif"
    made = export("exp_1", to=tmp_path / "model", format=format_, out=out, on_event=ignore)
    assert made.agreement.photos.difference <= 1e-3 and made.agreement.other_sizes.difference <= 1e-3
    assert made.facts["names"] == ["ground", "disc"] and made.facts["output"] == "masks" and made.facts["data_digest"]
    drawn = segment_predict("exp_1", scene, out=out, to=tmp_path / "ours", on_event=ignore)
    words = [str(tmp_path / "model" / "predict.py"), str(scene), str(tmp_path / "mask.tif")]
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with rasterio.open(tmp_path / "mask.tif") as mask, rasterio.open(drawn.masks[0]["classes"]) as ours:
        assert (mask.transform, mask.crs) == (ours.transform, ours.crs)
        assert (mask.read(1) == ours.read(1)).mean() > 0.999
