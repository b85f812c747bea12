"""Photos with several labels, stage by stage: table, split, training, scores, prediction, export, curation, the page."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import unchoke
from errors import refused
from unchoke.core.events import ignore
from unchoke.core.in_memory import write_data
from unchoke.data.corrections import LABEL, Correction, append_corrections, apply_corrections, load_corrections
from unchoke.data.sample_set import DataSource
from unchoke.data.scan import scan_samples
from unchoke.data.several_labels import split_cell
from unchoke.training.fit import fit

COLOURS = {"blue": (40, 60, 200), "green": (40, 170, 60), "red": (200, 50, 40)}
SETS = [*(list(pair) for size in (1, 2) for pair in combinations(COLOURS, size)), []]
"""Which colours a photo shows: seven kinds of photos, one of them without any."""
NUM = 84


@pytest.fixture(scope="session")
def plain(tiny_weights: Path) -> dict[str, Any]:
    """The quickest way to features."""
    quick = {"encoder": "test_resnet", "weights": str(tiny_weights), "engine": "torch", "precision": "f32", "workers": 1}
    return {**quick, "on_event": ignore}


def draw(folder: Path) -> None:
    """Photos of grey stripes; a stripe of its colour for each label. Colours differ from photo to photo."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(NUM):
        shown = SETS[number % len(SETS)]
        pixels = rng.integers(100, 150, (48, 48, 3))
        for place, name in zip(rng.permutation(3), shown, strict=False):
            pixels[:, 16 * place : 16 * place + 16] = np.array(COLOURS[name]) + rng.integers(-30, 30, (48, 16, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:02d}.png")
        rows.append((f"{number:02d}.png", "|".join(shown) or "none"))
    pd.DataFrame(rows, columns=["path", "label"]).to_csv(folder / "labels.csv", index=False)


@pytest.fixture(scope="session")
def striped(once: Any) -> Path:
    return Path(once("striped", draw))


@pytest.fixture(scope="session")
def several(striped: Path, plain: dict[str, Any], once: Any) -> Path:
    """A finished run. Shared: to be read only."""
    table = str(striped / "labels.csv")
    return Path(once("several", lambda folder: fit(table, multi_label=True, out=folder, **plain)))


def record(workspace: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((workspace / "experiments/exp_1/record.json").read_text())
    return found


def test_figures_of_all_and_of_each_label(several: Path) -> None:
    found = record(several)
    assert found["task"] == {"kind": "multi_label", "names": ["blue", "green", "red"]}
    figures = found["metrics"]["test"]
    assert {"mean_ap", "macro_f1", "micro_f1", "ap/blue", "f1/green", "precision/red", "recall/red"} <= set(figures)
    for name in ("mean_ap", "ap/blue"):
        assert figures[name]["low"] <= figures[name]["value"] <= figures[name]["high"]
    assert figures["mean_ap"]["value"] > 0.9
    assert found["baseline"]["gains"]["test"]["mean_ap"]["low"] > 0
    assert found["baseline"]["metrics"]["test"]["mean_ap"]["value"] < 0.7
    assert set(found["thresholds"]) == set(COLOURS)
    assert found["data"]["class_counts"]["train"].keys() == set(COLOURS)


def test_labels_in_proportion_in_every_split(several: Path) -> None:
    manifest = pd.read_csv(several / "manifest.csv")
    shares = {split: rows["label"].str.contains("red").mean() for split, rows in manifest.groupby("split")}
    assert max(shares.values()) - min(shares.values()) < 0.12


def test_evaluate_scores_the_same(several: Path) -> None:
    fresh = unchoke.evaluate("exp_1", out=several, on_event=ignore).metrics["test"]
    assert fresh["macro_f1"].value == pytest.approx(record(several)["metrics"]["test"]["macro_f1"]["value"])


def test_predict_gives_every_label_with_its_probability(several: Path, striped: Path) -> None:
    result = unchoke.predict("exp_1", [striped / "03.png", striped / "06.png"], out=several, on_event=ignore)
    assert [row["predicted"] for row in result.rows] == ["blue|green", "none"]
    assert result.rows[0]["p/blue"] > 0.5 > result.rows[0]["p/red"]
    with refused("option-not-for-task"):
        unchoke.predict("exp_1", striped / "00.png", top=2, out=several, on_event=ignore)


def test_a_wanted_recall_lowers_thresholds(several: Path, striped: Path) -> None:
    photos = sorted(striped.glob("*.png"))

    def count(**wanted: Any) -> int:
        rows = unchoke.predict("exp_1", photos, out=several, on_event=ignore, **wanted).rows
        return sum(len(split_cell(row["predicted"])) for row in rows)

    assert 0 < count(least_precision=0.999) <= count(least_recall=0.999)
    with refused("options-conflict"):
        unchoke.predict("exp_1", photos[0], least_precision=0.9, least_recall=0.9, out=several, on_event=ignore)


def test_columns_of_marks_and_a_frame_are_the_same_data(striped: Path, tmp_path: Path) -> None:
    table = pd.read_csv(striped / "labels.csv")
    marks = table["label"].str.get_dummies("|").drop(columns="none")
    frame = pd.concat([table["path"].map(lambda name: str(striped / name)), marks], axis=1)
    written, _ = write_data(frame, tmp_path / "frame")
    samples = scan_samples(DataSource(Path(written), multi_label=True)).samples
    assert samples.task.names == ("blue", "green", "red")
    assert sorted(samples.frame["label"]) == sorted(table["label"])


def test_rows_of_one_photo_are_joined(striped: Path, tmp_path: Path) -> None:
    table = pd.read_csv(striped / "labels.csv")
    long = table.assign(label=table["label"].str.split("|")).explode("label")
    long["path"] = long["path"].map(lambda name: str(striped / name))
    long.to_csv(tmp_path / "long.csv", index=False)
    samples = scan_samples(DataSource(tmp_path / "long.csv", multi_label=True)).samples
    assert sorted(samples.frame["label"]) == sorted(table["label"])


def marked(striped: Path, to: Path, no: str) -> Path:
    """The same data with a column of 1 and `no` for each label, at the absolute paths of the photos."""
    table = pd.read_csv(striped / "labels.csv")
    marks = table["label"].str.get_dummies("|").drop(columns="none").replace(0, int(no))
    pd.concat([table["path"].map(lambda name: str(striped / name)), marks], axis=1).to_csv(to, index=False)
    return to


@pytest.mark.parametrize("no", ["0", "-1"])
def test_repeated_label_columns_are_a_label_each(no: str, striped: Path, tmp_path: Path) -> None:
    table, how = marked(striped, tmp_path / "marks.csv", no), {"out": tmp_path / "out", "on_event": ignore}
    with refused("several-label-columns"):
        unchoke.check(table, label=("red", "blue"), **how)  # type: ignore[arg-type]
    unchoke.check(table, label=("red", "blue"), multi_label=True, **how)  # type: ignore[arg-type]
    samples = scan_samples(DataSource(table, multi_label=True, targets=("red", "blue"))).samples
    assert samples.task.names == ("blue", "red")
    alone = scan_samples(DataSource(table, multi_label=True, label="red")).samples
    assert set(alone.frame["label"]) == {"red", "none"}


@pytest.mark.parametrize("write", [json.dumps, str, lambda labels: json.dumps({"choices": labels})])
def test_lists_in_cells_are_several_labels(write: Any, striped: Path, tmp_path: Path) -> None:
    table = pd.read_csv(striped / "labels.csv")
    cells = [write(list(split_cell(cell))) for cell in table["label"]]
    frame = pd.DataFrame({"path": [str(striped / name) for name in table["path"]], "tags": cells})
    frame.to_csv(tmp_path / "lists.csv", index=False)
    source = DataSource(tmp_path / "lists.csv", label="tags")
    with refused("several-labels"):
        scan_samples(source)
    samples = scan_samples(replace(source, multi_label=True)).samples
    assert sorted(samples.frame["label"]) == sorted(table["label"])
    frame.assign(tags='{"points": [1, 2]}').to_csv(tmp_path / "lists.csv", index=False)
    with refused("not-labels"):
        scan_samples(source)


def test_rows_with_other_labels_lead_to_several_labels(striped: Path, tmp_path: Path) -> None:
    table = pd.read_csv(striped / "labels.csv").assign(path=lambda one: [str(striped / name) for name in one["path"]])
    long = table.assign(label=table["label"].str.split("|")).explode("label")
    long.to_csv(tmp_path / "long.csv", index=False)
    found = {finding.code: finding.fix for finding in scan_samples(DataSource(tmp_path / "long.csv")).findings}
    assert "--multi-label" in found["duplicate-ids"]


def test_class_folders_and_numbers_are_refused(photos: Path, striped: Path, tmp_path: Path) -> None:
    with refused("multi-label-without-labels"):
        scan_samples(DataSource(photos, multi_label=True))
    table = pd.read_csv(striped / "labels.csv")
    frame = table.assign(path=[str(striped / name) for name in table["path"]], size=np.arange(NUM) / 7)
    written, _ = write_data(frame, tmp_path)
    with refused("not-a-mark"):
        scan_samples(DataSource(Path(written), multi_label=True, targets=("size",)))


def test_an_exported_model_answers_the_same(several: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    exported = unchoke.export("exp_1", to=tmp_path / "model", out=several, on_event=ignore)
    facts = json.loads((tmp_path / "model" / "model.json").read_text())
    assert facts["agreement"]["photos"]["top1"] == 1.0
    assert len(facts["thresholds"]) == 3
    assert exported.to_text()


def test_a_loaded_model_names_labels(several: Path, striped: Path) -> None:
    model = unchoke.load_model("exp_1", out=several)
    assert str(model.predict(striped / "03.png")[0]) == "blue|green"


def test_wrong_labels_are_found_and_corrected(striped: Path, plain: dict[str, Any], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(striped, tmp_path / "photos"))
    table = pd.read_csv(folder / "labels.csv")
    assert table.loc[3, "label"] == "blue|green" and table.loc[0, "label"] == "blue"
    table.loc[[3, 0], "label"] = ["blue", "blue|red"]
    table.to_csv(folder / "labels.csv", index=False)
    out = tmp_path / "out"
    how = {name: value for name, value in plain.items() if name not in ("engine", "precision")}
    found = unchoke.curate(folder / "labels.csv", multi_label=True, out=out, **how)
    wrong = {one.photos[0]: one for one in found.findings if one.kind == "label"}
    assert wrong["03.png"].evidence["missing"] == ["green"]
    assert wrong["03.png"].suggested[0].value == "blue|green"
    append_corrections(out / "corrections.csv", [Correction("03.png", LABEL, "green|blue")])
    samples = scan_samples(DataSource(folder / "labels.csv", multi_label=True)).samples
    corrected = apply_corrections(samples, load_corrections(out / "corrections.csv")).samples.frame
    assert corrected.set_index("sample_id").loc["03.png", "label"] == "blue|green"


@pytest.mark.parametrize("how", [{"cut": "-1"}, {"cut": "none"}, {"head": "mlp"}, {"folds": 3, "fold": "all"}])
def test_other_ways_to_train(how: dict[str, Any], plain: dict[str, Any], striped: Path, tmp_path: Path) -> None:
    result = fit(striped / "labels.csv", multi_label=True, epochs=2, out=tmp_path / "out", **how, **plain)
    shown = result.to_text()
    assert "mAP" in shown


def test_a_blend_within_minutes(plain: dict[str, Any], striped: Path, tmp_path: Path) -> None:
    result = fit(striped / "labels.csv", multi_label=True, minutes=0.5, out=tmp_path / "out", **plain)
    assert "mAP" in result.to_text()
    rows = unchoke.predict("latest", striped / "03.png", out=tmp_path / "out", on_event=ignore).rows
    assert 0 < rows[0]["p/red"] < 1


def test_the_report_and_the_page_speak_of_labels(several: Path) -> None:
    page = (several / "experiments/exp_1/report.html").read_text()
    assert "Label by label" in page and "mAP" in page


def test_datasets_give_a_mark_for_each_label(several: Path) -> None:
    found = unchoke.FeatureDataset(several, split="test")
    assert found.classes == ("blue", "green", "red")
    assert found.targets.shape == (len(found), 3) and set(found.targets.unique().tolist()) == {0.0, 1.0}


def test_settings_of_classes_are_refused(striped: Path, plain: dict[str, Any], tmp_path: Path) -> None:
    for cut in ("end", "-1"):
        with refused("option-not-for-values"):
            fit(striped / "labels.csv", multi_label=True, cut=cut, class_weights="balanced", out=tmp_path / cut, **plain)


def test_a_submission_is_like_its_sample(several: Path, striped: Path, tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("name,labels\n03,red green\n06,\n")
    (tmp_path / "shares.csv").write_text("name,red,blue\n03,0.5,0.5\n")
    for like in ("words", "shares"):
        to = tmp_path / f"{like}_filled.csv"
        unchoke.predict("exp_1", striped, like=tmp_path / f"{like}.csv", to=to, out=several, on_event=ignore)
    assert (tmp_path / "words_filled.csv").read_text() == "name,labels\n03,blue green\n06,\n"
    shares = pd.read_csv(tmp_path / "shares_filled.csv")
    assert shares["blue"][0] > 0.5 > shares["red"][0]
