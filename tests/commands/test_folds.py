"""All folds: each sample is predicted once by a run that never saw it, groups stay whole, and what is done stays done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from errors import refused
from unchoke.core.errors import Interrupted
from unchoke.core.events import Chosen, Event, Note, ignore
from unchoke.core.remembered import load_remembered
from unchoke.core.settings import Settings
from unchoke.core.workspace import Workspace
from unchoke.data.manifest import load_manifest
from unchoke.runs.session import Session, open_session
from unchoke.training.fit import train
from unchoke.training.folds import FoldsResult, run_all_folds, train_all_folds
from unchoke.training.results import FitResult
from unchoke.training.scoring.predictions import load_predictions

if TYPE_CHECKING:
    from tests.unit.commands.conftest import Kept

FOLDS = 3
TARGETS = ("clover", "dead", "total")
WEIGHTS = {"clover": 0.1, "dead": 0.3, "total": 0.6}


@dataclass
class Scene:
    """A table of photos, the options to train on it, and the manifest as it was after each fold."""

    table: Path
    out: Path
    options: dict[str, Any]
    manifests: dict[int, pd.DataFrame]

    @property
    def settings(self) -> Settings:
        weights = WEIGHTS if self.options.get("target") else {}
        return Settings(data=str(self.table), folds=FOLDS, fold="all", target_weights=weights)

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.out)

    def one_fold(self, fold: int) -> FitResult:
        result = train(self.table, out=self.out, on_event=ignore, folds=FOLDS, fold=fold, **self.options)
        assert isinstance(result, FitResult)
        manifest = load_manifest(self.workspace.manifest_file)
        assert manifest is not None
        self.manifests[fold] = manifest
        return result

    def run(self, one_fold: Callable[[int], FitResult] | None = None) -> FoldsResult:
        return train_all_folds(one_fold or self.one_fold, settings=self.settings, workspace=self.workspace)


def make_scene(folder: Path, photos: Path, finished: Path, tiny_weights: Path, **options: Any) -> Scene:
    """Twenty photos of three classes, two photos to a plant; two targets that follow the class, and their sum."""
    files = [file for name in ("apple", "leaf", "plum") for file in sorted((photos / name).glob("*.jpg"))[:7]][:20]
    numbers = np.arange(len(files))
    clover, dead = (numbers // 7) * 2.0 + numbers / 50, 5.0 - numbers // 7
    columns = {"file": [file.name for file in files], "label": [file.parent.name for file in files], "plant": numbers // 2}
    table = pd.DataFrame({**columns, "clover": clover, "dead": dead, "total": clover + dead})
    table.to_csv(folder / "t.csv", index=False)
    shutil.copytree(finished / "engines", folder / "out" / "engines")
    common = {"images": [photos], "path": "file", "group": "plant", "encoder": "test_resnet", "weights": tiny_weights}
    return Scene(folder / "t.csv", folder / "out", {**common, "workers": 1, "head": "linear", **options}, {})


Folded = tuple[Scene, FoldsResult]


def folded(folder: Path, *places: Path, **options: Any) -> tuple[dict[str, Any], FoldsResult]:
    scene = make_scene(folder, *places, epochs=8, **options)
    result = scene.run()
    return vars(scene), result


@pytest.fixture(scope="session")
def classes(photos: Path, finished: Path, tiny_weights: Path, kept: Kept) -> Folded:
    """Shared: to be read only."""
    scene, result = kept("folds-classes", lambda folder: folded(folder, photos, finished, tiny_weights, label="label"))
    return Scene(**scene), result


@pytest.fixture(scope="session")
def numbers(photos: Path, finished: Path, tiny_weights: Path, kept: Kept) -> Folded:
    """Shared: to be read only."""
    scene, result = kept("folds-numbers", lambda folder: folded(folder, photos, finished, tiny_weights, target=TARGETS))
    return Scene(**scene), result


def test_each_sample_predicted_by_the_run_that_tested_it(classes: Folded) -> None:
    scene, result = classes
    oof = load_predictions(result.oof_file)
    table = pd.read_csv(scene.table, dtype="str").set_index("file")
    assert list(oof.columns)[:6] == ["sample_id", "fold", "group", "truth", "predicted", "confidence"]
    assert [name for name in oof.columns[6:] if not name.startswith("p/")] == []
    assert oof["sample_id"].tolist() == sorted(table.index)
    assert oof["truth"].tolist() == table.loc[oof["sample_id"], "label"].tolist()
    assert oof["group"].astype("str").tolist() == table.loc[oof["sample_id"], "plant"].tolist()
    for fold, run in enumerate(result.runs):
        tested = load_predictions(scene.workspace.run_folder(run) / "predictions.csv").query("split == 'test'")
        kept = oof[oof["fold"] == fold].set_index("sample_id").loc[tested["sample_id"]]
        assert kept["predicted"].tolist() == tested["predicted"].tolist()
        assert kept["confidence"].tolist() == tested["confidence"].tolist()


def test_no_group_is_in_two_splits(classes: Folded) -> None:
    scene, _ = classes
    for manifest in scene.manifests.values():
        assert set(manifest["split"]) == {"train", "val", "test"}
        assert manifest.groupby("group")["split"].nunique().max() == 1


def test_samples_keep_their_fold(classes: Folded) -> None:
    scene, result = classes
    first = scene.manifests[0].set_index("sample_id")["fold"]
    for fold, manifest in scene.manifests.items():
        kept = manifest.set_index("sample_id")
        assert kept["fold"].equals(first)
        assert (kept["fold"] == fold).equals(kept["split"] == "test")
    assert dict(load_predictions(result.oof_file)[["sample_id", "fold"]].to_numpy()) == first.to_dict()


def test_record_holds_folds_their_mean_and_the_pooled_score(classes: Folded) -> None:
    _, result = classes
    record, oof = json.loads((result.folder / "folds.json").read_text()), load_predictions(result.oof_file)
    accuracies = [(part["truth"] == part["predicted"]).mean() for _, part in oof.groupby("fold")]
    assert [fold["test"]["accuracy"]["value"] for fold in record["folds"]] == pytest.approx(accuracies, abs=1e-6)
    assert [fold["num_test"] for fold in record["folds"]] == oof.groupby("fold").size().tolist()
    over = record["over_folds"]["accuracy"]
    assert (over["mean"], over["num_folds"]) == (pytest.approx(np.mean(accuracies)), FOLDS)
    assert over["deviation"] == pytest.approx(np.std(accuracies, ddof=1), abs=1e-6)
    pooled = record["pooled"]["values"]["accuracy"]
    assert pooled["value"] == pytest.approx((oof["truth"] == oof["predicted"]).mean())
    assert pooled["low"] <= pooled["value"] <= pooled["high"]
    assert np.array(record["pooled"]["confusion"]).sum() == record["num_samples"] == 20
    losses = [-np.log(row[f"p/{row['truth']}"]) for _, row in oof.iterrows()]
    assert record["pooled"]["values"]["log_loss"]["value"] == pytest.approx(np.mean(losses), rel=1e-3)


def test_classes_are_compared_with_the_commonest(classes: Folded) -> None:
    _, result = classes
    expected = []
    for one in result.results:
        counts = one.run_record.data.class_counts or {}
        commonest = max(counts["train"], key=lambda name: counts["train"][name])
        expected.append(counts["test"].get(commonest, 0))
    assert result.baseline == pytest.approx(sum(expected) / 20)
    assert result.to_dict()["baseline"] == {"accuracy": result.baseline}


def test_values_are_compared_with_training_means(numbers: Folded) -> None:
    _, result = numbers
    oof = load_predictions(result.oof_file)
    baselines = [one.run_record.baseline for one in result.results]
    means = np.array([[one.answers[name] for name in TARGETS] for one in baselines if one is not None])[oof["fold"]]
    truth, weights = oof[[f"truth/{name}" for name in TARGETS]].to_numpy(), np.array(list(WEIGHTS.values()))
    spread = (weights * (truth - (weights * truth).sum() / (len(truth) * weights.sum())) ** 2).sum()
    assert result.baseline == pytest.approx(1 - (weights * (truth - means) ** 2).sum() / spread, abs=1e-5)
    assert result.to_dict()["baseline"] == {"weighted_r2": result.baseline}


def test_folds_that_do_not_beat_the_mean_say_so_first(numbers: Folded) -> None:
    _, result = numbers
    told = replace(result, baseline=result.pooled.values["weighted_r2"].value, already_done=False).to_text()
    assert told.startswith(f"{result.run} does not beat one answer for all: ")


def test_folds_without_all_probabilities_have_no_log_loss() -> None:
    from unchoke.training.folds import judge_oof

    oof = pd.DataFrame({"truth": ["a", "b", "a"], "predicted": ["a", "b", "b"], "confidence": [0.9, 0.8, 0.6]})
    old = judge_oof(oof, "classification", ["a", "b"], settings=Settings())
    assert "log_loss" not in old.values
    assert old.notes
    of_truth = oof.assign(truth_confidence=[0.9, 0.8, 0.4])
    found = judge_oof(of_truth, "classification", ["a", "b"], settings=Settings()).values["log_loss"].value
    assert found == pytest.approx(-np.log([0.9, 0.8, 0.4]).mean(), rel=1e-3)
    torn = of_truth.assign(truth_confidence=[0.9, 0.8, np.nan])
    assert "log_loss" not in judge_oof(torn, "classification", ["a", "b"], settings=Settings()).values


def test_tie_counts_as_the_predicted_class() -> None:
    from unchoke.training.folds import judge_oof

    names = ["a", "b", "c"]
    oof = pd.DataFrame(
        {"truth": ["c", "b", "a", "a"], "predicted": ["c", "b", "a", "b"], "confidence": [0.333333, 1.0, 0.5, 0.9]}
    )
    scores = judge_oof(oof, "classification", names, settings=Settings())
    assert scores.values["accuracy"].value == 0.75
    assert scores.confusion == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    # four samples, each in a bin of its own: the mean distance between confidence and hit
    assert scores.values["ece"].value == pytest.approx((2 / 3 + 0 + 0.5 + 0.9) / 4, abs=1e-4)


def test_target_weights_give_the_weighted_score(numbers: Folded) -> None:
    scene, result = numbers
    oof = load_predictions(result.oof_file)
    assert list(oof.columns[:3]) == ["sample_id", "fold", "group"]
    truth, predicted = (oof[[f"{what}/{name}" for name in TARGETS]].to_numpy() for what in ("truth", "predicted"))
    table = pd.read_csv(scene.table).set_index("file").loc[oof["sample_id"], list(TARGETS)]
    assert truth == pytest.approx(table.to_numpy(), rel=1e-6)
    weights = np.broadcast_to(list(WEIGHTS.values()), truth.shape)
    mean = (weights * truth).sum() / weights.sum()
    expected = 1 - (weights * (truth - predicted) ** 2).sum() / (weights * (truth - mean) ** 2).sum()
    weighted = result.pooled.values["weighted_r2"]
    assert weighted.value == pytest.approx(expected, abs=1e-5)
    assert weighted.low is not None
    total = 1 - ((truth - predicted)[:, 2] ** 2).sum() / ((truth[:, 2] - truth[:, 2].mean()) ** 2).sum()
    assert result.pooled.values["r2/total"].value == pytest.approx(total, abs=1e-5)


def test_the_result_reads_like_any_other(classes: Folded) -> None:
    scene, result = classes
    found = json.loads(json.dumps(result.to_dict()))
    assert found["runs"] == ["exp_1", "exp_2", "exp_3"]
    assert found["run"].startswith("folds_")
    assert Path(found["oof"]).is_file()
    assert all(Path(report).is_file() for report in found["reports"])
    assert found["metrics"]["test"]["accuracy"] == result.pooled.values["accuracy"].value
    assert found["timings"]["train"] == pytest.approx(sum(one.record["timings"]["train"] for one in result.results))
    assert found["memory"]["measured_bytes"] > 0
    text = result.to_text()
    assert "3 folds, 20 samples" in text
    assert f"{100 * result.baseline:.1f} %" in text
    assert f"unchoke report exp_1 --out {scene.out}" in text


def test_finished_folds_are_found_done(classes: Folded, tmp_path: Path) -> None:
    scene, first = classes
    own = replace(scene, out=Path(shutil.copytree(scene.out, tmp_path / "out")), manifests={})
    before = {file: file.stat().st_mtime_ns for file in own.out.rglob("*") if file.suffix in (".pt", ".csv", ".json")}
    again = own.run()
    assert (first.already_done, again.already_done, again.folder.name) == (False, True, first.folder.name)
    kept = [file for file in before if file.suffix == ".pt" or file.parent == again.folder]
    assert len(kept) >= FOLDS + 2
    assert {file: file.stat().st_mtime_ns for file in kept} == {file: before[file] for file in kept}


def test_stopped_between_folds_it_goes_on_to_the_same_bytes(classes: Folded, tmp_path: Path) -> None:
    scene, whole = classes
    fresh = Scene(scene.table, tmp_path / "out", scene.options, {})
    shutil.copytree(scene.out / "engines", fresh.out / "engines")

    def stopped(fold: int) -> FitResult:
        if fold == 1:
            raise Interrupted("stopped", code="interrupted", why="asked to", try_="again")
        return fresh.one_fold(fold)

    with pytest.raises(Interrupted):
        fresh.run(stopped)
    assert not list((fresh.out / "experiments").glob("folds_*"))
    result = fresh.run()
    assert [one.already_done for one in result.results] == [True, False, False]
    assert result.folder.name == whole.folder.name
    for name in ("oof.csv", "folds.json"):
        assert (result.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_folds_that_miss_a_sample_are_refused(classes: Folded) -> None:
    scene, result = classes
    with refused("folds-do-not-cover"):
        scene.run(lambda fold: result.results[0 if fold == 2 else fold])
    moved = result.results[2].run_record.model_copy(deep=True)
    moved.data.num_samples = 21
    with refused("folds-do-not-cover", "20 and 21"):
        scene.run(lambda fold: FitResult(moved, scene.out) if fold == 2 else result.results[fold])


def test_all_folds_need_a_number_of_folds(tmp_path: Path) -> None:
    with refused("folds-missing"):
        train_all_folds(lambda fold: pytest.fail("nothing may run"), settings=Settings(fold="all"), workspace=Workspace(tmp_path))


def test_each_fold_has_a_session_and_all_are_remembered(classes: Folded, tmp_path: Path) -> None:
    scene, whole = classes
    out = Path(shutil.copytree(scene.out, tmp_path / "out"))
    sessions: list[Session] = []
    events: list[Event] = []

    def one_fold(session: Session) -> FitResult:
        sessions.append(session)
        session.warn("the same warning in every fold")
        session.on_event(Chosen(whole_choice))
        session.remember_settings()
        assert session.settings.test_fold == len(sessions) - 1
        return whole.results[session.settings.test_fold]

    typed = {"data": scene.table, "folds": FOLDS, "fold": "all", **scene.options}
    with open_session(typed, out=out, on_event=events.append) as session:
        session.choices.append(whole_choice := session.policy.choices[0])
        result = run_all_folds(session, one_fold)
        assert [one.settings.fold for one in sessions] == [0, 1, 2]
        assert session.settings.fold == "all"
        assert len({id(one.timers) for one in (session, *sessions)}) == 4
        assert all(one.choices == session.choices and one.choices is not session.choices for one in sessions)
    assert (out / "experiments" / whole.folder.name / "oof.csv").read_bytes() == whole.oof_file.read_bytes()
    assert result.runs == whole.runs
    assert load_remembered(Workspace(out))["fold"] == "all"
    warnings = [event for event in events if isinstance(event, Note) and event.level == "warning"]
    assert len(warnings) == 1, "a warning that every fold gives is told once"
    assert len([event for event in events if isinstance(event, Chosen) and event.choice == whole_choice]) == 1


def test_one_command_runs_every_fold_once(classes: Folded, tmp_path: Path) -> None:
    scene, whole = classes
    out = tmp_path / "out"
    for name in ("engines", "features"):
        shutil.copytree(scene.out / name, out / name)
    first = train(scene.table, out=out, on_event=ignore, folds=FOLDS, fold="all", **scene.options)
    assert isinstance(first, FoldsResult)
    assert first.oof_file.read_bytes() == whole.oof_file.read_bytes()
    again = train(out=out, on_event=ignore, head="linear", epochs=8)
    assert isinstance(again, FoldsResult)
    assert again.already_done


def test_copies_under_two_labels_are_not_scored(own_photos: Path, tmp_path: Path, tiny_weights: Path) -> None:
    kinds = sorted(folder.name for folder in own_photos.iterdir())
    original = min((own_photos / kinds[0]).iterdir())
    shutil.copy(original, own_photos / kinds[1] / "relabelled.jpg")
    how = {"on_event": ignore, "workers": 1, "encoder": "test_resnet", "weights": str(tiny_weights), "epochs": 2}
    result = train(own_photos, out=tmp_path / "out", folds=3, fold="all", engine="torch", precision="f32", **how)
    assert isinstance(result, FoldsResult)
    oof = pd.read_csv(result.oof_file)
    assert len(oof) == result.pooled.num_samples == 43 - 2
    assert not {f"{kinds[0]}/{original.name}", f"{kinds[1]}/relabelled.jpg"} & set(oof["sample_id"])
    assert result.to_dict()["num_unscored"] == 2


def test_folds_of_ones_own_are_each_tested_once(classes: Folded, tmp_path: Path) -> None:
    scene, _ = classes
    table = pd.read_csv(scene.table).assign(farm=[f"farm {number // 2 % 3}" for number in range(20)])
    table.to_csv(tmp_path / "t.csv", index=False)
    for name in ("engines", "features"):
        shutil.copytree(scene.out / name, tmp_path / "out" / name)
    notes: list[str] = []

    def listen(event: Event) -> None:
        notes.extend([event.text] if isinstance(event, Note) else [])

    result = train(tmp_path / "t.csv", out=tmp_path / "out", on_event=listen, fold_column="farm", fold="all", **scene.options)
    assert isinstance(result, FoldsResult)
    oof = pd.read_csv(result.oof_file)
    expected = dict(zip(table["file"], table["farm"].str.removeprefix("farm ").astype(int), strict=True))
    assert dict(zip(oof["sample_id"], oof["fold"], strict=True)) == expected
    assert any("fold 2 " in note and "3 of 3" in note for note in notes)
    again = train(out=tmp_path / "out", on_event=ignore, head="linear", epochs=8)
    assert again.already_done
    with refused("no-such-column", "farmm"):
        train(out=tmp_path / "out", on_event=ignore, fold_column="farmm")
