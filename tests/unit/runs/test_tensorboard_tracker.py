"""Names in TensorBoard are those of the run."""

from __future__ import annotations

from pathlib import Path

from unchoke.runs.tensorboard_tracker import TensorboardTracker, read_steps
from unchoke.runs.tracker import Figure, TrackedRun


def test_names_of_any_script_and_sign_stay_apart(tmp_path: Path) -> None:
    names = ["test/iou/晴", "test/iou/云", "test/r2/Gewicht (trocken)", "test/r2/Gewicht [trocken]"]
    tracker = TensorboardTracker(tmp_path)
    tracker.begin(TrackedRun("exp_1", "identity", {}, {}))
    tracker.send([Figure(tracker.spell(name), 0, 0.5) for name in names])
    tracker.end("done")
    assert read_steps(tmp_path / "exp_1") == {name: {0} for name in names}
