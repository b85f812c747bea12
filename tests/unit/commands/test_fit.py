"""The main job: what is done stays done, what changed is redone, and parts can be run by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from unchoke.commands.fit import extract, fit, train
from unchoke.commands.results import FitResult, Rehearsal
from unchoke.core.errors import DataError, MachineError, UsageError
from unchoke.core.events import Chosen, Event, Note, Progress, StageStarted, ignore
from unchoke.core.record import RunRecord
from unchoke.core.remembered import load_remembered
from unchoke.core.workspace import Workspace
from unchoke.jobs.queue import JobQueue
from unchoke.photos.check_samples import check
from unchoke.reports.text import render_timings

RUN = Path("experiments/exp_1")


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
    assert "exp_1 is done" in result.to_text()


def test_remembered_settings_are_shown_as_such(workspace: Path) -> None:
    events: list[Event] = []
    fit(out=workspace, on_event=events.append)
    remembered = {event.choice.name for event in events if isinstance(event, Chosen) and "remembered" in event.choice.reason}
    assert {"encoder", "weights", "job_size", "workers"} <= remembered


def test_other_training_settings_give_another_run_on_the_same_features(workspace: Path) -> None:
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


def test_a_fit_sends_no_worker_ahead_to_try_pictures_it_reads_itself(finished: Path) -> None:
    assert "worker" not in json.loads((finished / RUN / "record.json").read_text())["timings"]


def test_an_extraction_says_what_it_reached_of_what_is_possible(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unchoke.machine.measure_rate.LEAST_S", 0.0)
    result = extract(out=workspace, on_event=ignore, views=1)
    assert (result.num_images, result.ceilings["extract"].num_items) == (42, 42)
    assert "extract reached" in result.to_text()
    assert json.loads(json.dumps(result.to_dict(), default=str))["ceilings"]["extract"]["share"] > 0


def test_one_job_by_hand_is_done_again_with_the_same_bytes(workspace: Path) -> None:
    job = JobQueue.load(workspace / "features").jobs()[1]
    before, records = shards(workspace), done_files(workspace)
    result = extract(job=job.job_id, out=workspace, on_event=ignore)
    assert (result.num_jobs, result.num_images, result.num_jobs_left) == (1, 16, 0)
    assert shards(workspace) == before
    after = done_files(workspace)
    assert len(set(after) - set(records)) == 1
    assert job.job_id in next(iter(set(after) - set(records)))


def test_a_job_that_does_not_exist_is_answered_with_those_that_do(workspace: Path) -> None:
    known = JobQueue.load(workspace / "features").jobs()[0].job_id
    with pytest.raises(UsageError) as caught:
        extract(job="nonsense", out=workspace, on_event=ignore)
    assert known in caught.value.why


def test_a_job_of_features_made_another_way_is_refused(workspace: Path) -> None:
    job = JobQueue.load(workspace / "features").jobs()[0]
    before = shards(workspace)
    with pytest.raises(UsageError, match="another way"):
        extract(job=job.job_id, out=workspace, on_event=ignore, engine="torch", precision="f32")
    assert shards(workspace) == before


def test_a_rehearsed_extraction_runs_nothing(workspace: Path) -> None:
    before = shards(workspace)
    result = extract(out=workspace, on_event=ignore, engine="torch", precision="f32", dry_run=True)
    assert (result.num_jobs, result.num_images, result.dry_run) == (3, 42, True)
    assert "would be run" in result.to_text()
    assert shards(workspace) == before
    assert "precision" not in load_remembered(Workspace(workspace))


def test_a_rehearsed_fit_says_what_it_would_do(photos: Path, tmp_path: Path) -> None:
    result = fit(photos, out=tmp_path / "out", on_event=ignore, job_size=10, workers=1, dry_run=True)
    assert isinstance(result, Rehearsal)
    found = result.to_dict()
    assert (found["dry_run"], found["num_samples"], found["num_jobs"]) == (True, 42, 5)
    assert {"device", "engine", "workers"} <= {choice["name"] for choice in found["choices"]}
    assert "nothing was run" in result.to_text()
    assert not (tmp_path / "out" / "features").exists()
    assert not (tmp_path / "out" / "unchoke.toml").exists()


def test_a_mistyped_path_does_not_cost_the_remembered_settings(workspace: Path, tmp_path: Path) -> None:
    before = (workspace / "unchoke.toml").read_bytes()
    with pytest.raises(UsageError):
        fit(tmp_path / "photoz", out=workspace, on_event=ignore)
    assert (workspace / "unchoke.toml").read_bytes() == before


def test_a_workspace_among_the_pictures_is_refused(own_photos: Path) -> None:
    before = sorted(own_photos.rglob("*"))
    with pytest.raises(UsageError, match="inside") as caught:
        fit(own_photos, out=own_photos / "out", on_event=ignore)
    assert f"--out {own_photos.parent}" in caught.value.try_
    assert sorted(own_photos.rglob("*")) == before


def test_no_data_at_all_is_a_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no DATA"):
        fit(out=tmp_path / "new", on_event=ignore)


def test_the_gate_stops_on_errors_with_all_of_them(own_photos: Path, tmp_path: Path) -> None:
    files = sorted(own_photos.rglob("*.jpg"))
    for file in files[:4]:
        file.write_bytes(b"")
    for number in (20, 21):
        shutil.copy(files[number], own_photos / "apple" / f"copied{number}.jpg")
    with pytest.raises(DataError) as caught:
        fit(own_photos, out=tmp_path / "out", on_event=ignore, workers=1)
    assert "2 problems" in caught.value.what
    assert all(word in caught.value.what for word in ("no bytes", "9.1%"))
    result = check(own_photos, out=tmp_path / "out", on_event=ignore, workers=1)
    assert not result.ok
    assert "mend the errors" in result.to_text()


def test_a_file_that_extraction_cannot_decode_is_found_as_check_would_find_it(
    own_photos: Path, tmp_path: Path, tiny_weights: Path
) -> None:
    broken = sorted(own_photos.rglob("*.jpg"))[5]
    broken.write_bytes(broken.read_bytes()[:-400])
    how = {"out": tmp_path / "out", "on_event": ignore, "workers": 1, "encoder": "test_resnet", "weights": str(tiny_weights)}
    first = fit(own_photos, **how, epochs=2)
    assert [finding["code"] for finding in first.record["findings"] if finding["code"] == "truncated"] == ["truncated"]
    assert [(row["path"], row["stage"]) for row in first.record["quarantine"]] == [(str(broken), "check")]
    assert fit(own_photos, **how, epochs=2).already_done
    found = check(own_photos, out=tmp_path / "elsewhere", on_event=ignore, workers=1).findings
    assert [finding.message for finding in found if finding.code == "truncated"] == [
        finding["message"] for finding in first.record["findings"] if finding["code"] == "truncated"
    ]


def test_findings_that_decoding_made_outdated_are_not_recorded(own_photos: Path, tmp_path: Path, tiny_weights: Path) -> None:
    files = sorted(own_photos.rglob("*.jpg"))
    files[5].write_bytes(files[5].read_bytes()[:-400])
    files[7].write_bytes(b"")
    how = {"on_event": ignore, "workers": 1, "encoder": "test_resnet", "weights": str(tiny_weights), "max_failures": 0.5}
    recorded = [(found["code"], found["message"]) for found in fit(own_photos, out=tmp_path, **how, epochs=2).record["findings"]]
    found = check(own_photos, out=tmp_path / "elsewhere", on_event=ignore, workers=1, max_failures=0.5).findings
    of_files = {"truncated", "empty", "sizes"}
    assert [(code, message) for code, message in recorded if code in of_files] == [
        (finding.code, finding.message) for finding in found if finding.code in of_files
    ]


def test_broken_files_that_are_equal_under_two_labels_do_not_close_the_gate(
    own_photos: Path, tmp_path: Path, tiny_weights: Path
) -> None:
    files = sorted(own_photos.rglob("*.jpg"))
    for file in (files[0], files[-1]):
        file.write_bytes(files[0].read_bytes()[:1500])
    how = {"on_event": ignore, "workers": 1, "encoder": "test_resnet", "weights": str(tiny_weights), "max_failures": 0.5}
    assert check(own_photos, out=tmp_path / "elsewhere", on_event=ignore, workers=1, max_failures=0.5).ok
    record = fit(own_photos, out=tmp_path / "out", **how, epochs=2).record
    assert sorted(row["path"] for row in record["quarantine"]) == [str(files[0]), str(files[-1])]


def test_too_many_files_that_do_not_decode_close_the_gate_before_training(
    own_photos: Path, tmp_path: Path, tiny_weights: Path
) -> None:
    for file in sorted(own_photos.rglob("*.jpg"))[:6]:
        file.write_bytes(file.read_bytes()[:-400])
    events: list[Event] = []
    with pytest.raises(DataError, match="end before the picture does"):
        fit(own_photos, out=tmp_path, on_event=events.append, workers=1, encoder="test_resnet", weights=str(tiny_weights))
    assert "train" not in {event.stage for event in events if isinstance(event, StageStarted)}


def test_copies_on_both_sides_and_under_two_labels_are_said_and_not_scored(
    own_photos: Path, tmp_path: Path, tiny_weights: Path
) -> None:
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
    how = {"on_event": events.append, "workers": 1, "encoder": "test_resnet", "weights": str(tiny_weights), "epochs": 2}
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
    assert "Left out of the score: 5 images" in result.to_text()
    assert "Left out of the score: 5 images" in result.report.read_text()
    assert result.to_dict()["num_unscored"] == 5
    with pytest.raises(DataError, match="above the limit of 5%"):
        fit(own_photos, out=tmp_path / "out", **how)
    assert fit(own_photos, out=tmp_path / "out", max_failures=0.5, **how).record["unscored"] == record["unscored"]


def test_a_second_check_asks_no_worker_again_and_names_the_next_command(photos: Path, tmp_path: Path) -> None:
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
    ("options", "kind", "words"),
    [
        ({"cut": "-5"}, UsageError, "--cut -5"),
        ({"engine": "torch", "precision": "int8"}, UsageError, "--engine torch does not run --precision int8"),
        ({"engine": "openvino", "precision": "f16"}, UsageError, "--engine openvino does not run --precision f16"),
        ({"encoder": "resnet_50"}, UsageError, "resnet_50"),
        ({"weights": "nowhere.pt"}, UsageError, "nowhere.pt"),
        ({"device": "cuda:7"}, MachineError, "cuda:7"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_not_replaced(
    workspace: Path, options: dict[str, Any], kind: Any, words: str
) -> None:
    with pytest.raises(kind) as caught:
        fit(out=workspace, on_event=ignore, **options)
    assert words in caught.value.what


def test_a_torn_apart_engine_choice_is_made_again(workspace: Path) -> None:
    shutil.rmtree(workspace / "engines")
    result = fit(out=workspace, on_event=ignore)
    assert isinstance(result, FitResult)
    assert result.already_done


def test_regression_on_a_table_is_recorded_and_evaluates_to_the_same_figures(
    finished: Path, photos: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    from unchoke.commands.evaluate import evaluate

    files = sorted(photos.rglob("*.jpg"))
    table = pd.DataFrame({"file": [file.name for file in files], "mass": range(len(files)), "height": [n / 3 for n in range(42)]})
    table.to_csv(tmp_path / "m.csv", index=False)
    out = tmp_path / "out"
    shutil.copytree(finished / "engines", out / "engines")
    common = {"images": [photos], "path": "file", "target": ["mass", "height"], "encoder": "test_resnet", "weights": tiny_weights}
    result = train(tmp_path / "m.csv", out=out, on_event=ignore, epochs=2, workers=1, views=1, **common)
    assert result.record["task"] == {"kind": "regression", "names": ["mass", "height"]}
    assert "mae" in " ".join(result.record["metrics"]["test"])
    assert evaluate(out=out, on_event=ignore).to_dict()["metrics"] == result.to_dict()["metrics"]


def test_features_too_large_for_float16_fail_their_job_and_are_never_stored(
    photos: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    import torch

    from unchoke.features.encoders import load_state

    state = load_state(tiny_weights)
    loud = {name: value * 1e7 if value.ndim == 1 and name.startswith("layer4") else value for name, value in state.items()}
    torch.save(loud, tmp_path / "loud.pt")
    options = {"encoder": "test_resnet", "weights": tmp_path / "loud.pt", "engine": "torch", "precision": "f32", "workers": 1}
    with pytest.raises(DataError, match="42 images have no features"):
        extract(photos, out=tmp_path / "out", on_event=ignore, **options)
    job = JobQueue.load(tmp_path / "out" / "features").jobs()[0]
    with pytest.raises(DataError, match=f"job {job.job_id} failed"):
        extract(job=job.job_id, out=tmp_path / "out", on_event=ignore)
    assert shards(tmp_path / "out") == {}
    failed = next((tmp_path / "out" / "features").glob("*.failed"))
    assert "does not fit float16" in failed.read_text()


def test_a_precision_asked_for_alone_picks_an_engine_that_has_it(workspace: Path) -> None:
    for precision, engine in (("f32", "openvino:f32"), ("f16", "torch:f16")):
        result = extract(out=workspace, on_event=ignore, precision=precision, dry_run=True)
        assert next(choice.value for choice in result.choices if choice.name == "engine") == engine


def test_a_run_that_was_stopped_reports_the_time_of_all_its_stretches(workspace: Path) -> None:
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
    assert "in 3 stretches" in page and "in the last stretch" in page
    assert not (workspace / "experiments" / "stretches.json").read_text().strip("{}\n ")
    assert train(out=workspace, on_event=ignore, epochs=8).run_record.stretches == []
