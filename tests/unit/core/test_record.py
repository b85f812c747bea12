"""A record comes back from JSON as it was, whatever it lacks, holds beside, or had damaged."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from records import GROCERIES, build_classification, build_network, build_regression, build_segmentation
from unchoke.core.choices import Choice
from unchoke.core.findings import Finding
from unchoke.core.record import RunRecord
from unchoke.core.timeline import Timeline
from unchoke.runs.report.json import to_jsonable

KINDS = {
    "classes": build_classification(GROCERIES),
    "values": build_regression(),
    "network": build_network(),
    "masks": build_segmentation(num_samples=2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_in_comes_out(kind: str) -> None:
    plain = to_jsonable(KINDS[kind])
    for figures in plain["metrics"].values():
        for one in figures.values():
            one |= {"low": one.get("low"), "high": one.get("high")}
    record = RunRecord.of(plain)
    assert to_jsonable(record) == plain
    assert to_jsonable(RunRecord.model_validate(plain)) == plain
    assert isinstance(record.choices[0], Choice)
    assert all(isinstance(found, Finding) for found in record.findings or [])
    assert all(isinstance(one, Timeline) for one in record.timeline.values())


def test_what_is_absent_stays_absent_and_null_stays_null() -> None:
    plain = {"run": "exp_1", "calibration": None, "data": {"class_counts": None}, "images_per_s": None}
    assert RunRecord.of(plain).to_dict() == plain
    assert RunRecord.of({}).to_dict() == {}


def test_what_a_later_version_adds_is_kept_at_every_depth() -> None:
    plain = {
        "run": "exp_1",
        "weather": {"rain": True},
        "encoder": {"name": "e", "dim": 7},
        "training": {"loop": {"colour": "red"}},
    }
    assert RunRecord.of(plain).to_dict() == plain


def test_odd_part_of_a_file_counts_as_missing() -> None:
    record = RunRecord.of(
        {
            "run": 3,
            "title": "kept",
            "metrics": {"test": {"accuracy": {"value": "much"}}},
            "history": [{"epoch": 1, "val_loss": float("nan")}, "rubbish"],
            "sweep": [{"picked": True, "best_epoch": [1]}],
            "timings": {"train": True},
            "memory": "lots",
        }
    )
    assert (record.run, record.title, record.metrics, record.history, record.timings) == ("", "kept", {}, [], {})
    assert [(row.picked, row.best_epoch) for row in record.sweep] == [(True, None)]
    assert record.memory.planned_bytes is None


def test_a_record_made_in_code_must_be_sound() -> None:
    for wrong in ({"metrics": {"test": {"accuracy": "much"}}}, {"timings": {"train": float("nan")}}, {"run": 3}):
        with pytest.raises(ValidationError):
            RunRecord.model_validate(wrong)
