"""The main job: what is done stays done, what changed is redone, and parts can be run by hand."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import unchoke
from errors import refused
from unchoke.core.errors import UsageError
from unchoke.core.events import Chosen, Event, Note, Progress, StageStarted, ignore
from unchoke.core.record import RunRecord
from unchoke.core.remembered import load_remembered
from unchoke.core.workspace import Workspace
from unchoke.data.check_samples import check
from unchoke.jobs.queue import JobQueue
from unchoke.runs.report.text import render_timings
from unchoke.training.fit import extract, fit, train
from unchoke.training.results import FitResult, Rehearsal

RUN = Path("experiments/exp_1")
PLAIN = {"encoder": "test_resnet", "engine": "torch", "precision": "f32", "workers": 1, "on_event": ignore}
"""The quickest way to features, where the way is not the subject."""


def done_files(root: Path) -> list[str]:
    return sorted(file.name for file in (root / "features").glob("*.done"))


def shards(root: Path) -> dict[str, bytes]:
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in (root / "features").rglob("*.npz")}


def test_a_finished_fit_says_so_and_runs_nothing(workspace: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in workspace.rglob("*") if file.suffix in (".npz", ".done", ".pt", ".json")}
    events: list[Event] = []
    result = fit(out=workspace, on_event=events.append)
    assert isinstance(result, FitResult)
    assert (result.run, result.already_done) == ("exp_1", True)
    stages = {event.stage for event in events if isinstance(event, StageStarted)}
    assert not stages & {"worker", "extract", "train", "evaluate", "report"}
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert "exp_1" in result.to_text()
    remembered = {event.choice.name for event in events if isinstance(event, Chosen) and "remembered" in event.choice.reason}
    assert {"encoder", "weights", "job_size", "workers"} <= remembered


def test_other_training_settings_same_features(workspace: Path) -> None:
    before = done_files(workspace)
    result = train(out=workspace, on_event=ignore, head="linear", epochs=2)
    assert (result.run, result.already_done) == ("exp_2", False)
    assert done_files(workspace) == before
    assert (
        result.record["encoder"]["fingerprint"]
        == json.loads((workspace / RUN / "record.json").read_text())["encoder"]["fingerprint"]
    )


def test_the_record_holds_what_the_result_promises(finished: Path) -> None:
    record = json.loads((finished / RUN / "record.json").read_text())
    result = FitResult(RunRecord.of(record), finished).to_dict()
    assert {"accuracy", "balanced_accuracy", "macro_f1"} <= set(result["metrics"]["test"])
    assert {"index", "check", "engine", "extract", "train", "evaluate", "report"} <= set(result["timings"])
    assert result["images_per_s"] > 0
    assert result["memory"]["planned_bytes"] > 0
    assert result["memory"]["measured_bytes"] > 0
    assert record["data"]["splits"] == {"train": 30, "val": 6, "test": 6}
    low, high = result["intervals"]["test"]["accuracy"]
    assert low <= result["metrics"]["test"]["accuracy"] <= high
    assert "worker" not in record["timings"], "no worker tries pictures that fit reads itself"


def test_one_job_again_gives_the_same_bytes(workspace: Path) -> None:
    job = JobQueue.load(workspace / "features").jobs()[1]
    before, records = shards(workspace), done_files(workspace)
    result = extract(job=job.job_id, out=workspace, on_event=ignore)
    assert (result.num_jobs, result.num_images, result.num_jobs_left) == (1, 16, 0)
    assert shards(workspace) == before
    after = done_files(workspace)
    assert len(set(after) - set(records)) == 1
    assert job.job_id in next(iter(set(after) - set(records)))


def test_jobs_that_cannot_be_run_are_refused(workspace: Path) -> None:
    job = JobQueue.load(workspace / "features").jobs()[0]
    before = shards(workspace)
    events: list[Event] = []
    with refused("no-such-job", "nonsense", job.job_id):
        extract(job="nonsense", out=workspace, on_event=events.append)
    assert not [event for event in events if isinstance(event, StageStarted)], "before anything is read"
    with refused("job-of-other-features", job.job_id):
        extract(job=job.job_id, out=workspace, on_event=ignore, engine="torch", precision="f32")
    assert shards(workspace) == before


def test_a_rehearsed_extraction_runs_nothing(workspace: Path) -> None:
    before = shards(workspace)
    result = extract(out=workspace, on_event=ignore, engine="torch", precision="f32", dry_run=True)
    assert (result.num_jobs, result.num_images, result.dry_run) == (3, 42, True)
    assert shards(workspace) == before
    assert "precision" not in load_remembered(Workspace(workspace))


def test_a_rehearsed_fit_says_what_it_would_do(photos: Path, tmp_path: Path) -> None:
    result = fit(photos, out=tmp_path / "out", on_event=ignore, job_size=10, workers=1, dry_run=True)
    assert isinstance(result, Rehearsal)
    found = result.to_dict()
    assert (found["dry_run"], found["num_samples"], found["num_jobs"]) == (True, 42, 5)
    assert {"device", "engine", "workers"} <= {choice["name"] for choice in found["choices"]}
    assert not (tmp_path / "out" / "features").exists()
    assert not (tmp_path / "out" / "unchoke.toml").exists()


def test_mistyped_path_keeps_remembered_settings(workspace: Path, tmp_path: Path) -> None:
    before = (workspace / "unchoke.toml").read_bytes()
    with refused("no-such-file", "photoz"):
        fit(tmp_path / "photoz", out=workspace, on_event=ignore)
    assert (workspace / "unchoke.toml").read_bytes() == before


def test_a_workspace_among_the_pictures_is_refused(own_photos: Path) -> None:
    before = sorted(own_photos.rglob("*"))
    with refused("workspace-inside-data", str(own_photos / "out"), f"--out {own_photos.parent}"):
        fit(own_photos, out=own_photos / "out", on_event=ignore)
    assert sorted(own_photos.rglob("*")) == before


def test_offered_workspace_outside_works(own_photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my data").mkdir()
    photos = own_photos.rename(tmp_path / "my data" / "photos")
    monkeypatch.chdir(photos)
    with pytest.raises(UsageError) as caught:
        fit(Path(), on_event=ignore)
    assert caught.value.code == "workspace-inside-data"
    words = shlex.split(str(caught.value.try_).replace(",", ""))
    assert fit(Path(), out=Path(words[words.index("--out") + 1]), on_event=ignore, dry_run=True)


def test_no_data_at_all_is_a_wrong_usage(tmp_path: Path) -> None:
    with refused("no-data-given"):
        fit(out=tmp_path / "new", on_event=ignore)


def test_the_gate_stops_on_errors_with_all_of_them(own_photos: Path, tmp_path: Path) -> None:
    files = sorted(own_photos.rglob("*.jpg"))
    for file in files[:4]:
        file.write_bytes(b"")
    for number in (20, 21):
        shutil.copy(files[number], own_photos / "apple" / f"copied{number}.jpg")
    with refused("unsound-data", "2 problems", "9.1%"):
        fit(own_photos, out=tmp_path / "out", on_event=ignore, workers=1)
    result = check(own_photos, out=tmp_path / "out", on_event=ignore, workers=1)
    assert not result.ok


def test_files_found_broken_on_the_way_are_those_check_finds(own_photos: Path, tmp_path: Path, tiny_weights: Path) -> None:
    """One ends early, one is empty, two are equal but lie under two labels: none of them closes the gate."""
    files = sorted(own_photos.rglob("*.jpg"))
    files[5].write_bytes(files[5].read_bytes()[:-400])
    files[7].write_bytes(b"")
    for file in (files[0], files[-1]):
        file.write_bytes(files[0].read_bytes()[:1500])
    how = {**PLAIN, "weights": tiny_weights, "max_failures": 0.5, "epochs": 2}
    record = fit(own_photos, out=tmp_path / "out", **how).record
    assert fit(own_photos, out=tmp_path / "out", **how).already_done
    checked = check(own_photos, out=tmp_path / "elsewhere", on_event=ignore, workers=1, max_failures=0.5)
    assert checked.ok
    of_files = {"truncated", "empty", "sizes"}
    recorded = [(found["code"], found["message"]) for found in record["findings"] if found["code"] in of_files]
    assert {code for code, _ in recorded} >= {"truncated", "empty"}
    assert recorded == [(found.code, found.message) for found in checked.findings if found.code in of_files]
    broken = sorted(str(files[number]) for number in (0, 5, 7, -1))
    assert sorted(row["path"] for row in record["quarantine"]) == broken
    assert {row["stage"] for row in record["quarantine"]} == {"check"}


def test_too_many_broken_files_stop_before_training(own_photos: Path, tmp_path: Path, tiny_weights: Path) -> None:
    for file in sorted(own_photos.rglob("*.jpg"))[:6]:
        file.write_bytes(file.read_bytes()[:-400])
    events: list[Event] = []
    with refused("unsound-data"):
        fit(own_photos, out=tmp_path, **{**PLAIN, "on_event": events.append}, weights=str(tiny_weights))
    assert "extract" in {event.stage for event in events if isinstance(event, StageStarted)}
    assert "train" not in {event.stage for event in events if isinstance(event, StageStarted)}


def test_copies_across_splits_and_labels_are_not_scored(own_photos: Path, tmp_path: Path, tiny_weights: Path) -> None:
    classes = sorted(folder.name for folder in own_photos.iterdir())
    for name in classes:
        for number, file in enumerate(sorted((own_photos / name).glob("*.jpg"))):
            place = own_photos / ("train" if number < 8 else "val" if number < 11 else "test") / name
            place.mkdir(parents=True, exist_ok=True)
            file.rename(place / file.name)
        (own_photos / name).rmdir()
    for name in classes:  # a copy of what is trained on, for each class
        shutil.copy(min((own_photos / "train" / name).iterdir()), own_photos / "test" / name / "copied.jpg")
    contradicted = sorted((own_photos / "test" / classes[0]).iterdir())[1]
    shutil.copy(contradicted, own_photos / "test" / classes[1] / "relabelled.jpg")
    events: list[Event] = []
    how = {**PLAIN, "on_event": events.append, "weights": str(tiny_weights), "epochs": 2}
    result = train(own_photos, out=tmp_path / "out", **how)
    told = [event.text for event in events if isinstance(event, Note) and event.level == "warning"]
    assert any("duplicate-across-splits" in text for text in told)
    assert any("duplicate-label-conflict" in text for text in told)
    record = result.record
    assert sorted(row["sample_id"] for row in record["unscored"]) == sorted(
        [f"test/{name}/copied.jpg" for name in classes]
        + [f"test/{classes[0]}/{contradicted.name}", f"test/{classes[1]}/relabelled.jpg"]
    )
    scored = pd.read_csv(result.folder / "predictions.csv")
    assert not set(scored["sample_id"]) & {row["sample_id"] for row in record["unscored"]}
    assert record["data"]["splits"]["test"] == sum(scored["split"] == "test") == 3 * len(classes) - 1
    assert all(": 5 images" in text for text in (result.to_text(), result.report.read_text()))
    assert result.to_dict()["num_unscored"] == 5
    with refused("unsound-data", "5%"):
        fit(own_photos, out=tmp_path / "out", **how)
    assert fit(own_photos, out=tmp_path / "out", max_failures=0.5, **how).record["unscored"] == record["unscored"]


def test_near_copies_across_splits_are_not_scored(own_photos: Path, tmp_path: Path, tiny_weights: Path) -> None:
    from PIL import Image, ImageOps

    files = sorted(own_photos.rglob("*.jpg"))
    rows = [(str(file), file.parent.name, ("train", "val", "test")[number % 3]) for number, file in enumerate(files)]
    planted = []
    for change, (path, label, split) in zip(("small", "mirrored", "other"), rows[:9:3], strict=True):
        image = Image.open(path).convert("RGB")
        changed = ImageOps.mirror(image) if change == "mirrored" else image.resize((image.width * 2 // 3, image.height * 2 // 3))
        assert split == "train"
        planted.append((str(tmp_path / f"{change}.jpg"), label, "test"))
        changed.save(planted[-1][0])
    classes = sorted({label for _, label, _ in rows})
    planted[2] = (
        planted[2][0],
        next(name for name in classes if name != planted[2][1]),
        "train",
    )  # another label
    table = tmp_path / "photos.csv"
    pd.DataFrame([*rows, *planted], columns=["path", "label", "split"]).to_csv(table, index=False)
    how = {**PLAIN, "on_event": ignore, "weights": str(tiny_weights), "epochs": 2, "path": "path", "label": "label"}
    record = fit(table, out=tmp_path / "out", split="split", **how).record
    assert sorted(Path(row["path"]).name for row in record["unscored"]) == ["mirrored.jpg", "small.jpg"]
    found = {one["code"]: one for one in record["findings"] if one["code"].startswith("near-copies")}
    assert found["near-copies-across-splits"]["evidence"]["sets"] == 2
    assert found["near-copies-labels"]["evidence"]["files"] == 2


def test_second_check_asks_no_worker_again(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "my out"
    stages = []
    for _ in range(2):
        events: list[Event] = []
        result = check(str(photos), out=str(out), on_event=events.append, workers=1)
        stages.append({event.stage for event in events if isinstance(event, StageStarted)})
    assert result.ok
    assert ("worker" in stages[0], "worker" in stages[1]) == (True, False)
    assert result.to_text().endswith(f"unchoke fit {photos} --out '{out}'")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"cut": "-5"}, "cut-too-deep"),
        ({"engine": "torch", "precision": "int8"}, "precision-unsupported"),
        ({"engine": "openvino", "precision": "f16"}, "precision-unsupported"),
        ({"encoder": "resnet_50"}, "unknown-encoder"),
        ({"weights": "nowhere.pt"}, "no-such-weights"),
        ({"device": "cuda:7"}, "device-not-available"),
    ],
)
def test_wish_that_cannot_be_met_is_refused(workspace: Path, options: dict[str, Any], code: str) -> None:
    with refused(code, *options.values()):
        fit(out=workspace, on_event=ignore, **options)


def test_a_torn_apart_engine_choice_is_made_again(workspace: Path) -> None:
    shutil.rmtree(workspace / "engines")
    result = fit(out=workspace, on_event=ignore)
    assert isinstance(result, FitResult)
    assert result.already_done


def test_regression_on_a_table_evaluates_to_the_same_figures(value_run: tuple[Path, str]) -> None:
    from unchoke.training.evaluate import evaluate

    out, run = value_run
    record = json.loads((out / "experiments" / run / "record.json").read_text())
    assert record["task"] == {"kind": "regression", "names": ["dry_g", "rank"]}
    assert "mae" in " ".join(record["metrics"]["test"])
    assert evaluate(out=out, on_event=ignore).to_dict()["metrics"] == FitResult(RunRecord.of(record), out).to_dict()["metrics"]


def test_features_too_large_for_float16_fail_their_job(photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    import torch

    from unchoke.features.encoders import load_state

    state = load_state(tiny_weights)
    loud = {name: value * 1e7 if value.ndim == 1 and name.startswith("layer4") else value for name, value in state.items()}
    torch.save(loud, tmp_path / "loud.pt")
    with refused("features-missing", "42 images"):
        extract(photos, out=tmp_path / "out", weights=tmp_path / "loud.pt", **PLAIN)
    job = JobQueue.load(tmp_path / "out" / "features").jobs()[0]
    with refused("jobs-failed", job.job_id):
        extract(job=job.job_id, out=tmp_path / "out", on_event=ignore)
    assert shards(tmp_path / "out") == {}
    failed = next((tmp_path / "out" / "features").glob("*.failed"))
    assert "float16" in failed.read_text()


def test_precision_alone_picks_an_engine_that_has_it(workspace: Path) -> None:
    for precision, engine in (("f32", "openvino:f32"), ("f16", "torch:f16")):
        result = extract(out=workspace, on_event=ignore, precision=precision, dry_run=True)
        assert next(choice.value for choice in result.choices if choice.name == "engine") == engine


def test_stopped_run_reports_the_time_of_all_stretches(workspace: Path) -> None:
    def stop_in_training(event: Event) -> None:
        if isinstance(event, Progress) and event.stage == "train":
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(out=workspace, on_event=stop_in_training, epochs=7, workers=1)
    record = train(out=workspace, on_event=ignore, epochs=7, workers=2).run_record
    assert len(record.stretches) == 3
    assert record.timings["train"] == pytest.approx(sum(one["train"] for one in record.stretches))
    assert "in 3 stretches" in render_timings(record)
    page = (workspace / "experiments" / record.run / "report.html").read_text()
    assert "in 3 stretches" in page
    assert not (workspace / "experiments" / "stretches.json").read_text().strip("{}\n ")
    assert train(out=workspace, on_event=ignore, epochs=8).run_record.stretches == []


def test_data_in_memory_goes_on_as_a_table(photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    out, pairs = tmp_path / "out", [(file, file.parent.name) for file in sorted(photos.rglob("*.jpg"))]
    first = unchoke.fit(pairs, out=out, weights=str(tiny_weights), epochs=2, **PLAIN)
    again = unchoke.fit(pairs, out=out, epochs=2, on_event=ignore)
    assert (again.run, again.already_done) == ("exp_1", True)
    assert list(first.run_record.task.names) == ["apple", "leaf", "plum"]
    assert repr(first).startswith("exp_1: test accuracy") and str(first.report) in repr(first)
    assert "<table>" in first._repr_html_() and first.metrics["test"]["accuracy"] is not None
    assert len(first.predict(photos / "apple" / "apple 00.jpg", on_event=ignore).rows) == 1
    assert first.model.classes == ("apple", "leaf", "plum")


def test_one_value_where_several_may_be_given(photos: Path, tmp_path: Path) -> None:
    rows = [f"{file.relative_to(photos).as_posix()},{number}" for number, file in enumerate(sorted(photos.rglob("*.jpg")))]
    (tmp_path / "table.csv").write_text("\n".join(["file,height", *rows]))
    table = tmp_path / "table.csv"
    found = unchoke.check(table, images=photos, path="file", target="height", out=tmp_path / "out", on_event=ignore)
    assert found.num_samples == 42
