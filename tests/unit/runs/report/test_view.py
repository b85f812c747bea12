"""The view model: what a record says about a training, its time and its profile, as facts and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from records import as_record
from unchoke.core.record import MemoryPlanRecord, ProfileRecord
from unchoke.runs.report import view
from unchoke.runs.report.html import render_report
from unchoke.runs.report.text import render_profile


def test_every_part_of_the_training_is_told(network: dict[str, Any]) -> None:
    assert dict(view.training_facts(as_record(network))) == {
        "network": "tf_efficientnet_lite0, the last 4 of 12 blocks trained",
        "pictures": "2×(2×2) tiles (streams, then rows and columns) at 224 px, fused by FiLM",
        "targets": "green, dead learned, never negative; total = green + dead",
        "target weights": "green 0.1, dead 0.2, total 0.7",
        "extra inputs": "NDVI",
        "step": "16 samples, 4 at once; 64 at once in evaluation",
        "precision": "bfloat16, channels last, gradient checkpointing",
        "learning rate": "0.001 for the head; 0.0001 for the backbone's last layer, each before it 0.8 times the next; "
        "1 epoch of warm-up, then a cosine",
        "averaging": "weights are averaged over steps, decay 0.999",
        "regularisation": "weight decay 0.02, gradients clipped at 1",
        "batch statistics": "frozen",
        "course": "1,520 steps in 40 epochs, epoch 31 was kept, resumed from step 300 after a stop",
        "out of memory": "2 times: what did not fit was halved and run again, same samples, at the end 4 at once",
    }


def test_heads_on_features_have_nothing_to_tell(groceries: dict[str, Any]) -> None:
    record = as_record(groceries)
    assert view.training_facts(record) == view.memory_parts(record.memory) == []
    assert view.derived_targets(None) == {}
    assert view.memory_words(record.memory) == "1.1 GB planned, 812.0 MB measured"
    bounded = record.memory.model_copy(update={"plan": MemoryPlanRecord(limit_bytes=4 * 10**9, counted=True)})
    assert view.memory_words(bounded) == "at most 1.1 GB planned of a limit of 4.0 GB, 812.0 MB measured"


def test_stages_add_up_with_before_and_after(groceries: dict[str, Any]) -> None:
    found = view.work_tables(as_record(groceries), explain=True)[0]
    assert [row[0] for row in found.rows] == ["waiting for data", "forward", "backward", "other", "beginning and ending"]
    assert sum(found.strip) == pytest.approx(1, abs=1e-3)
    assert sum(row.seconds for row in view.training_stages(as_record(groceries))) == pytest.approx(1.62, abs=1e-3)
    assert all(row[4] for row in found.rows)


def test_report_draws_bars_for_work_and_loading(groceries: dict[str, Any]) -> None:
    page = render_report(as_record(groceries))
    for words in ("Training: where the time went", "Making features: inside loading", "9.3 %", "2 workers added up"):
        assert words in page
    assert "bytes to pixels" in page  # every number is explained
    assert "<title>decode: 75.0 %, 1.5 s</title>" in page
    assert "Training epoch by epoch" in page


def test_unknown_stage_is_shown_by_its_name(groceries: dict[str, Any]) -> None:
    groceries["timeline"]["train"]["stages"].append({"stage": "polish", "seconds": 1.0, "share": 0.4, "calls": 3})
    assert "polish" in view.work_tables(as_record(groceries))[0].to_text()
    del groceries["timeline"]
    assert view.work_tables(as_record(groceries)) == []


def test_a_step_is_told_with_how_it_was_timed() -> None:
    stages = [{"stage": "wait", "seconds": 0.0015}, {"stage": "forward", "seconds": 0.0085}]
    text = view.step_table({"num_steps": 3, "seconds": 0.01, "stages": stages}, undisturbed=True)
    assert text.startswith("a step takes 10.0 ms: the mean of 3 steps without the profiler")
    assert ["waiting", "for", "data", "15.0", "%", "1.50", "ms"] in [line.split()[:7] for line in text.splitlines()]


def operator(name: str, **figures: float) -> dict[str, Any]:
    names = ("self_cpu_s", "cpu_s", "self_device_s", "device_s", "self_cpu_bytes", "self_device_bytes")
    return {"name": name, "calls": 4, **dict.fromkeys(names, 0), **figures}


def profile(**changes: Any) -> ProfileRecord:
    many = [operator(f"aten::op{number}", self_cpu_s=number / 1000, cpu_s=0.5, self_cpu_bytes=-8) for number in range(1, 15)]
    plain = {
        "num_steps": 3,
        "num_operators": 14,
        "cpu_s": 0.105,
        "device_s": 0.0,
        "operators": [*many, operator("aten::empty", self_cpu_bytes=4_000_000)],
        "traces": ["logs/profiler/exp 1.pt.trace.json"],
        "pages": ["logs/profiler/exp 1.html"],
        **changes,
    }
    return ProfileRecord(**plain)


def test_top_ten_first_files_last() -> None:
    lines = render_profile(profile(), root=Path("out")).splitlines()
    assert [line.split()[0] for line in lines if line.startswith("aten::op")] == [f"aten::op{n}" for n in range(14, 4, -1)]
    assert lines[0] == "top 10 of 14 operators by CPU time, in 3 steps (self: without what it called)"
    assert ["aten::op14", "14.0", "ms", "13.3", "%", "500", "ms", "4", "3.50", "ms"] in [line.split() for line in lines]
    assert ["aten::empty", "4.0", "MB", "4"] in [line.split() for line in lines]
    assert "look    vizviewer 'out/logs/profiler/exp 1.pt.trace.json'" in lines


def test_device_has_its_own_table() -> None:
    text = render_profile(
        profile(device_s=0.2, operators=[operator("aten::mm", self_device_s=0.1, device_s=0.1, self_device_bytes=2_000)]),
        root=Path("out"),
    )
    assert "top 10 by time on the device" in text
    assert "by device memory" in text
    assert "2.0 kB" in text


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (0.000004, "4.00 µs"), (0.45, "450 ms")])
def test_short_times_keep_the_digits_that_matter(seconds: float, text: str) -> None:
    assert view.short_time(seconds) == text
