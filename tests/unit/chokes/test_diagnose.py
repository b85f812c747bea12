"""Recordings with one cause planted in their numbers: it is named first, with its line; a healthy one names nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unchoke.chokes.diagnose import diagnose, source_lines
from unchoke.chokes.diagnose.training_figures import TrainingFigures
from unchoke.chokes.recording import Recording
from unchoke.core.findings import Finding

COLUMNS = [
    "end_s", "wall_s", "wait_s", "copy_s", "forward_s", "backward_s", "optimizer_s", "evaluate_s", "checkpoint_s",
    "batches", "samples", "items", "minor_faults", "user_s", "system_s", "rss_bytes", "loss", "steps",
]  # fmt: skip
SCRIPT = "/home/someone/train.py"
STEPS = 40


def step(**changed: float) -> list[float]:
    """A healthy step of 100 ms on 16 samples."""
    usual = dict.fromkeys(COLUMNS, 0.0) | {"batches": 1, "samples": 16, "steps": 1, "rss_bytes": 5e8, "loss": 1.0}
    usual |= {"wall_s": 0.1, "forward_s": 0.035, "backward_s": 0.055, "optimizer_s": 0.008, "user_s": 0.18}
    return [(usual | changed)[name] for name in COLUMNS]


def loader(**changed: Any) -> dict[str, Any]:
    """Loading that costs next to nothing, ten batches an epoch, four epochs."""
    usual = {
        "number": 0, "dataset": "Photos", "dataset_file": SCRIPT, "dataset_line": 20, "collate": "default_collate",
        "collate_file": "/site-packages/torch/utils/data/_utils/collate.py", "num_samples": 160, "batch_size": 16,
        "iterators": 4, "batches": STEPS, "samples": 640, "wait_s": 0.04, "fetch_s": 0.04, "getitem_s": 0.03,
        "fetched_samples": 640, "fetches": STEPS, "sample_shape": [3, 64, 64], "batch_bytes": 16 * 3 * 64 * 64 * 4,
    }  # fmt: skip
    return usual | changed


def call(kind: str, **changed: Any) -> dict[str, Any]:
    usual = {"kind": kind, "phase": "getitem", "file": SCRIPT, "line": 30, "function": "Photos.__getitem__"}
    return usual | {"count": 640, "seconds": 4.0, "distinct": 160, "example": "photos/1.jpg"} | changed


def found(
    *,
    steps: list[list[float]] | None = None,
    loaders: list[dict[str, Any]] | None = None,
    calls: list[dict[str, Any]] | None = None,
    samples: list[dict[str, Any]] | None = None,
    modules: list[dict[str, Any]] | None = None,
    facts: dict[str, Any] | None = None,
) -> list[Finding]:
    main = {"role": "main", "calls": calls or [], "samples": samples or [], "sample_period_s": 0.01, "usage": {"rss_bytes": 5e8}}
    recording = Recording.from_dict(
        {
            "main": main,
            "machine": {"cores": 2, "memory_bytes": 16e9},
            "steps": {"columns": COLUMNS, "rows": steps or [step()] * STEPS},
            "loaders": loaders if loaders is not None else [loader()],
            "modules": modules or [],
            "facts": facts or {},
        }
    )
    return diagnose(recording)


def slow_steps(loading_s: float) -> list[list[float]]:
    """Steps that wait for loading in their own process."""
    return [step(wall_s=0.1 + loading_s, wait_s=loading_s)] * STEPS


def slow_loader(loading_s: float, **changed: Any) -> list[dict[str, Any]]:
    total_s = STEPS * loading_s
    return [loader(wait_s=total_s, fetch_s=total_s, getitem_s=total_s, **changed)]


def test_a_healthy_recording_names_nothing() -> None:
    assert found() == []


def test_a_recording_without_steps_names_nothing() -> None:
    assert diagnose(Recording()) == []


@pytest.mark.parametrize(
    ("code", "row"),
    [
        ("stat-per-sample", call("stat", count=64_000, distinct=9_000)),
        ("list-per-sample", call("list", amount=640 * 4_000, distinct=1)),
        (
            "oversized-decode",
            call("decode", amount=640 * 1_920_000, detail={"format": "JPEG", "width_px": 1600, "height_px": 1200}),
        ),
        ("repeated-decode", call("decode", amount=640 * 64 * 64, detail={"format": "PNG"})),
        ("reopened-file", call("raster_open", distinct=1, example="scene.tif")),
        ("compressed-npz", call("npz", amount=640e6, detail={"compressed": True})),
        ("parsed-per-sample", call("csv", distinct=1, example="labels.csv")),
        ("transform-at-full-size", call("transform", amount=640 * 1_920_000, detail={"name": "filter"})),
    ],
)
def test_loading_cost_is_named_with_its_line(code: str, row: dict[str, Any]) -> None:
    findings = found(steps=slow_steps(0.1), loaders=slow_loader(0.1), calls=[row])

    assert findings[0].code == code
    assert (findings[0].path, findings[0].line) == (SCRIPT, 30)
    assert findings[0].severity == "warning"
    assert findings[0].evidence["gain_share"] > 0.2
    assert findings[0].fix
    assert findings[0].command
    assert "a step" in findings[0].expected_gain


def test_loading_hidden_behind_steps_is_left_alone() -> None:
    hidden = loader(num_workers=2, persistent=True, fetch_s=4.0, getitem_s=4.0, wait_s=0.02)

    assert found(loaders=[hidden], calls=[call("stat", count=64_000)]) == []


def test_python_in_a_transform_is_named_by_its_function() -> None:
    row = {"stage": "python", "phase": "getitem", "file": SCRIPT, "line": 44, "function": "brighten", "count": 380}

    findings = found(steps=slow_steps(0.1), loaders=slow_loader(0.1), samples=[row])

    assert (findings[0].code, findings[0].line) == ("python-transform", 44)


def test_workers_that_are_started_every_epoch_are_named() -> None:
    started = loader(num_workers=2, start_method="spawn", startup_s=4.0, wait_s=4.1, fetch_s=0.4)

    findings = found(steps=slow_steps(0.1), loaders=[started])

    assert findings[0].code == "worker-startup"
    assert "persistent_workers=True" in findings[0].command


def test_a_slow_collate_of_ones_own_is_named() -> None:
    mine = slow_loader(0.1, collate="stack", collate_file=SCRIPT, collate_line=50, collate_s=3.6)

    assert found(steps=slow_steps(0.1), loaders=mine)[0].code == "slow-collate"


def test_loading_beside_idle_cores_asks_for_workers() -> None:
    idle = [step(wall_s=0.2, wait_s=0.1, user_s=0.2)] * STEPS

    findings = found(steps=idle, loaders=slow_loader(0.1))

    assert findings[0].code == "no-workers"
    assert findings[0].evidence["remedy"] == "workers:2"


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("slow-checkpoint", {"steps": [step(wall_s=0.2, checkpoint_s=0.1)] * STEPS, "calls": [call("save", phase="checkpoint")]}),
        ("host-sync", {"steps": [step(wall_s=0.2, items=256)] * STEPS, "calls": [call("item", phase="step", count=10_240)]}),
        ("allocator-faults", {"steps": [step(minor_faults=60_000, user_s=0.1, system_s=0.08)] * STEPS}),
        ("anomaly-mode", {"facts": {"anomaly": True}}),
        (
            "slow-evaluation",
            {
                "steps": [step(wall_s=0.3, evaluate_s=0.2)] * STEPS,
                "loaders": [loader(), loader(number=1, evaluation=True, iterators=20, batch_size=1)],
            },
        ),
        (
            "tiny-batches",
            {
                "steps": [step(wall_s=0.01, samples=1, forward_s=0.003, backward_s=0.005, optimizer_s=0.001)] * STEPS,
                "loaders": [loader(batch_size=1, samples=STEPS)],
            },
        ),
    ],
)
def test_what_a_step_loses_its_time_to_is_named(code: str, changed: dict[str, Any]) -> None:
    findings = found(**changed)

    assert findings[0].code == code
    assert findings[0].severity == "warning"


def test_kept_graphs_are_named_with_the_variable() -> None:
    growing = [step(wall_s=0.1 + 0.01 * number) for number in range(STEPS)]
    kept = [{"step": 8, "tensors": 8}, {"step": 40, "tensors": 40, "holder": {"name": "losses", "file": SCRIPT, "line": 61}}]

    first = found(steps=growing, facts={"kept_graphs": kept})[0]

    assert (first.code, first.line) == ("graph-kept", 61)
    assert "losses keeps 40 results" in first.message


def network(name: str, **changed: Any) -> dict[str, Any]:
    usual = {"name": name, "class": "Sequential", "file": SCRIPT, "line": 70, "depth": 1, "calls_per_step": 1, "batch": 16}
    usual |= {"seconds_per_step": 0.03, "input_shape": [16, 3, 64, 64], "training": True, "grad_enabled": True}
    return usual | {"num_params": 1000, "num_trainable": 1000, "num_in_optimizer": 1000, "output_requires_grad": True} | changed


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("tile-loop", {"calls_per_step": 16}),
        ("frozen-gradients", {"num_in_optimizer": 0}),
        (
            "frozen-recomputed",
            {"num_in_optimizer": 0, "num_trainable": 0, "output_requires_grad": False, "repeated_inputs_share": 0.74},
        ),
    ],
)
def test_what_the_network_is_asked_to_do_in_vain_is_named(code: str, changed: dict[str, Any]) -> None:
    findings = found(modules=[network("backbone", **changed)])

    assert findings[0].code == code
    assert findings[0].line == 70
    assert "backbone" in findings[0].message


def test_findings_come_with_the_largest_gain_first() -> None:
    calls = [call("stat", count=64_000, seconds=1.0), call("csv", seconds=3.0, line=31, distinct=1)]

    shares = [finding.evidence["gain_share"] for finding in found(steps=slow_steps(0.1), loaders=slow_loader(0.1), calls=calls)]

    assert shares == sorted(shares, reverse=True)
    assert len(shares) >= 2


def look(stage: str, phase: str, line: int, function: str, count: int, **more: Any) -> dict[str, Any]:
    return {"stage": stage, "phase": phase, "file": SCRIPT, "line": line, "function": function, "count": count, **more}


def test_time_of_another_line_did_not_stray() -> None:
    """Of 4 s of making samples 3 s are checks; 0.6 s of decoding and 0.2 s of joining stay, and 0.2 s are nobody's."""

    def saved_s(*checks: dict[str, Any]) -> float:
        calls = [*checks, call("decode", line=31, seconds=0.6, distinct=640)]
        first = found(steps=slow_steps(0.1), loaders=slow_loader(0.1, collate_s=0.2), calls=calls)[0]
        assert first.code == "stat-per-sample"
        return float(first.evidence["saved_s"])

    half = call("stat", count=32_000, seconds=1.5)
    assert saved_s(call("stat", count=64_000, seconds=3.0)) == pytest.approx(0.98 * (3 + 0.8 * 0.2))
    assert saved_s(half, {**half, "line": 29}) == pytest.approx(0.98 * (3 + 0.8 * 0.2))
    assert saved_s(call("stat", count=64_000, seconds=5.0)) == pytest.approx(0.98 * (4 - 0.6))  # counted now and then, scaled up


@pytest.mark.parametrize(("block_px", "kept_s"), [([256, 256], 0.08), ([2048, 1], 0.06), ([16, 16], 1.0)])
def test_open_handle_keeps_blocks_that_are_reread(block_px: list[int], kept_s: float) -> None:
    """640 windows of 64 pixels in a scene of 2,048: read in large blocks they decode most of it again and again."""
    detail = {"size_px": [2048, 2048], "block_px": block_px, "to_px": [64, 64], "bands": 4, "windowed": True}
    calls = [call("raster_open", seconds=2.0, distinct=1), call("raster_read", seconds=1.0, line=31, distinct=1, detail=detail)]

    findings = found(steps=slow_steps(0.1), loaders=slow_loader(0.1), calls=calls)

    assert findings[0].code == "reopened-file"
    assert findings[0].evidence["saved_s"] == pytest.approx(3 + 0.8 * 1 - kept_s, abs=0.05)


def test_looks_are_brought_to_the_scale_of_what_was_timed() -> None:
    """Half of a step is timed in the network: looks, which come late there, do not change that."""
    rows = [look("python", "step", 44, "main", 300, state="python"), look("backward", "step", 67, "main", 700, state="native")]
    rows.append(look("forward", "step", 43, "main", 100, library="torch.nn.functional:pad", state="native"))
    run = TrainingFigures(
        Recording.from_dict(
            {"main": {"samples": rows}, "steps": {"columns": COLUMNS, "rows": [step(wall_s=0.196)] * STEPS}, "loaders": []}
        )
    )

    assert {row.line: seconds for row, seconds in run.looks} == pytest.approx({67: 3.92, 44: 2.94, 43: 0.98})


def test_a_frozen_part_saves_no_more_than_forward_takes() -> None:
    """Looked at closely, its steps took four times as long."""
    frozen = {"num_in_optimizer": 0, "num_trainable": 0, "output_requires_grad": False, "repeated_inputs_share": 0.74}
    parts = [network("encoder", depth=0, seconds_per_step=0.12, **frozen), network("head", depth=0, seconds_per_step=0.02)]

    saved_s = found(modules=parts)[0].evidence["saved_s"]

    assert saved_s == pytest.approx(0.75 * 6 / 7 * 0.035 * STEPS)


def test_workers_cannot_bring_more_than_the_cores_allow() -> None:
    """Nine tenths of a step are loading on one of two cores: two of them together halve it at the best."""
    steps = [step(wall_s=1.0, wait_s=0.9, user_s=1.0)] * STEPS

    findings = found(steps=steps, loaders=slow_loader(0.9, fetch_user_s=0.9 * STEPS))

    assert findings[0].code == "no-workers"
    assert 0.4 < findings[0].evidence["gain_share"] <= 0.51


def test_idle_waiting_is_shared_by_workers() -> None:
    """A sample that sleeps keeps no core busy, but two workers sleep at most twice as fast."""
    findings = found(steps=[step(wall_s=1.0, wait_s=0.95, user_s=0.05)] * STEPS, loaders=slow_loader(0.95, fetch_user_s=0.1))

    assert findings[0].code == "no-workers"
    assert findings[0].evidence["gain_share"] <= 0.55


def test_a_deeper_cause_comes_before_workers(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("def __getitem__(self, i):\n    return self.db.execute(QUERY, (i,)).fetchall()\n")
    row = look("transform", "getitem", 2, "Photos.__getitem__", 900, state="native") | {"file": str(script)}

    findings = found(
        steps=[step(wall_s=1.0, wait_s=0.9, user_s=1.0)] * STEPS, loaders=slow_loader(0.9, fetch_user_s=36.0), samples=[row]
    )

    assert [finding.code for finding in findings][:1] == ["query-per-sample"]
    assert (findings[0].path, findings[0].line) == (str(script), 2)
    assert 0.8 < findings[0].evidence["gain_share"] < 0.91


def test_waiting_ends_if_workers_keep_up() -> None:
    """Four workers made 16 s of samples beside 1 s of steps; without the lock's three quarters they keep up."""
    steps = [step(wall_s=0.1, wait_s=0.075, forward_s=0.01, backward_s=0.01, optimizer_s=0.0)] * STEPS
    slow = loader(num_workers=4, persistent=True, wait_s=3.0, fetch_s=16.0, getitem_s=16.0)
    lock = {"library": "multiprocessing.synchronize:SemLock.__enter__", "state": "lock"}
    rows = [look("transform", "getitem", 31, "Photos.__getitem__", 75, **lock), look("wait", "getitem", 16, "read", 25)]
    worker = {"role": "loader", "samples": rows, "sample_period_s": 0.01}
    recording = Recording.from_dict(
        {
            "machine": {"cores": 2},
            "steps": {"columns": COLUMNS, "rows": steps},
            "loaders": [slow],
            "workers": [worker],
        }
    )

    run = TrainingFigures(recording)

    assert run.on_path_s(0.0) == pytest.approx(0.0)
    assert run.on_path_s(12.0) == pytest.approx(3.0)
    assert run.on_path_s(6.0) == pytest.approx(1.5)


def test_work_at_an_epochs_start_is_named_by_its_line() -> None:
    rows = [look("python", "outside", 17, "Balanced.__iter__.<locals>.<listcomp>", 800), look("forward", "step", 60, "main", 200)]

    findings = found(steps=[step(wall_s=0.5, wait_s=0.4)] * STEPS, samples=rows)

    assert (findings[0].code, findings[0].line) == ("slow-line", 17)
    assert "of every epoch" in findings[0].message


def test_costly_line_beside_the_network_is_named() -> None:
    rows = [look("other", "step", 80, "callback", 700, library="acme.charts:draw", state="native")]

    findings = found(steps=[step(wall_s=0.5)] * STEPS, samples=[*rows, look("forward", "step", 60, "main", 300)])

    assert (findings[0].code, findings[0].line) == ("slow-line", 80)
    assert "computing in acme.charts.draw" in findings[0].message


def test_time_before_and_after_training_is_not_its_cost() -> None:
    rows = [look("python", "setup", 5, "prepare", 5_000), look("python", "after", 90, "plot", 5_000)]

    assert found(samples=[*rows, look("backward", "step", 60, "main", 300)]) == []


def test_a_network_in_float64_is_named() -> None:
    module = {"name": "Net", "class": "Net", "depth": 0, "num_params": 1000, "num_in_optimizer": 1000, "dtype": "float64"}

    findings = found(modules=[{**module, "file": SCRIPT, "line": 50, "seconds_per_step": 0.035}])

    assert findings[0].code == "double-precision"


def test_only_a_large_table_with_moving_rows_is_named() -> None:
    def embedding(rows: int) -> list[dict[str, Any]]:
        return [
            {"name": "Net", "class": "Net", "depth": 0, "num_params": rows * 16, "num_in_optimizer": rows * 16},
            {
                "name": "Net.table", "class": "Embedding", "depth": 1, "num_params": rows * 16, "num_in_optimizer": rows * 16,
                "dtype": "float32", "input_shape": [256, 24], "output_width": 16,
            },
        ]  # fmt: skip

    steps = [step(wall_s=0.2, optimizer_s=0.12)] * STEPS

    assert found(steps=steps, modules=embedding(1_000_000))[0].code == "dense-optimizer"
    assert all(finding.code != "dense-optimizer" for finding in found(steps=steps, modules=embedding(6_000)))


def test_arithmetic_on_whole_pictures_is_named() -> None:
    peek = {
        "file": SCRIPT,
        "line": 15,
        "name": "img",
        "px": 1_920_000,
        "sides": [1200, 1600],
        "dtype": "float64",
        "text": "float64 1200×1600×3",
    }
    rows = [look("transform", "getitem", 15, "normalise", 900, state="native")]

    findings = found(steps=slow_steps(0.4), loaders=slow_loader(0.4), samples=rows, facts={"peeks": [peek]})

    assert (findings[0].code, findings[0].line) == ("transform-at-full-size", 15)
    assert "float64" in findings[0].message


def test_table_beside_the_sample_is_no_full_size_picture() -> None:
    """As long as a sample is high, and far wider: a matrix of filters, not the sample itself."""
    peek = {"file": SCRIPT, "line": 15, "name": "fb", "px": 64 * 513, "sides": [64, 513], "dtype": "float32", "text": ""}
    rows = [look("transform", "getitem", 15, "filters", 900, state="native")]

    findings = found(steps=slow_steps(0.4), loaders=slow_loader(0.4), samples=rows, facts={"peeks": [peek]})

    assert all(finding.code != "transform-at-full-size" for finding in findings)


def test_garbage_collection_in_every_step_is_named() -> None:
    row = call("gc", phase="step", line=45, function="main", count=STEPS, seconds=8.0)

    findings = found(steps=[step(wall_s=0.3)] * STEPS, calls=[row])

    assert (findings[0].code, findings[0].line) == ("gc-per-step", 45)
    assert findings[0].evidence["gain_share"] == pytest.approx(8.0 / 12.0)


def test_page_faults_are_a_note_up_to_a_quarter_of_the_time() -> None:
    findings = found(steps=[step(minor_faults=40_000, system_s=0.02)] * STEPS)

    assert [(finding.code, finding.severity) for finding in findings] == [("allocator-faults", "info")]


def test_same_arguments_in_every_step_are_named() -> None:
    chain = [[SCRIPT, 50, "Net.forward"], [SCRIPT, 66, "main"]]
    rows = [
        look("forward", "step", 30, "normalise", 600, callers=chain, state="native"),
        look("backward", "step", 67, "main", 400, state="native"),
    ]
    rows.append(look("forward", "step", 51, "Net.forward", 50, callers=chain[1:], library="torch.nn.modules.module:Module.call"))
    same = {"file": SCRIPT, "function": "normalise", "met": 8, "arguments": ["adj"]}
    learns = {"file": SCRIPT, "function": "Net.forward", "met": 8, "arguments": ["x", "adj"]}
    trains = {"file": SCRIPT, "function": "main", "met": 8, "arguments": ["epochs"]}

    findings = found(steps=[step(wall_s=0.2)] * STEPS, samples=rows, facts={"same_arguments": [same, learns, trains]})

    assert [(finding.code, finding.line) for finding in findings] == [("recomputed-result", 50)]
    assert findings[0].evidence["gain_share"] == pytest.approx(0.57, abs=0.03)


def test_work_repeated_in_every_epoch_is_named(tmp_path: Path) -> None:
    def findings(body: str) -> list[Finding]:
        script = tmp_path / "train.py"
        script.write_text(f"import random\ndef weigh(mask):\n    {body}\n    return mask\n\ndef loss(x, y):\n    weigh(y)\n")
        source_lines._program.cache_clear()
        file = {"file": str(script)}
        chain = [[str(script), 7, "loss"], [SCRIPT, 66, "main"]]
        rows = [
            look("other", "step", 3, "weigh", 600, callers=chain, state="native") | file,
            look("backward", "step", 67, "main", 400, state="native"),
        ]
        same = {"function": "weigh", "met": 120, "distinct": 30, "arguments": ["mask"], **file}
        return found(steps=[step(wall_s=0.2)] * STEPS, samples=rows, facts={"same_arguments": [same]})

    assert [(one.code, one.line) for one in findings("mask = distance(mask)")][:1] == [("recomputed-result", 7)]
    assert all(one.code != "recomputed-result" for one in findings("mask = mask + random.random()"))


def test_batches_that_are_mostly_padding_are_named() -> None:
    findings = found(loaders=[loader(padded_share=0.6)])

    assert findings[0].code == "padded-batches"
    assert findings[0].evidence["gain_share"] == pytest.approx(0.6 * 0.98)
    assert found(loaders=[loader(padded_share=0.05)]) == []
