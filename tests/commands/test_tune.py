"""`unchoke tune` from data to verdicts, and verdicts from `unchoke.toml` to what is run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.conftest import TINY

import unchoke
from errors import refused
from unchoke.core.events import Event, Note, StageStarted, ignore
from unchoke.core.settings import Settings
from unchoke.core.tuned import TuningVerdicts, Verdict, load_verdicts, model_name, save_verdicts
from unchoke.core.workspace import Workspace
from unchoke.features.prepare_engine import Picture
from unchoke.machine.memory.memory_watch import MemoryWatch
from unchoke.runs.session import Session
from unchoke.training.data import Problem
from unchoke.training.fit import extract
from unchoke.training.network.loop_choices import TrainedPart, choose_feeding, choose_loop
from unchoke.training.network.prepare_pixels import prepare_pixels
from unchoke.tuning.tune_result import TuneResult

if TYPE_CHECKING:
    from tests.unit.commands.conftest import Kept

SMALL = {"encoder": TINY, "cut": "-1", "device": "cpu", "input_px": 64, "engine": "torch", "compile": False}


Tuned = tuple[TuneResult, list[Event], Path]


@pytest.fixture(scope="module")
def tuned(photos: Path, tiny_weights: Path, kept: Kept, one_torch_thread: None) -> Tuned:
    """A frozen part and a part that trains, tuned for a few seconds. Shared: to be read only."""

    def build(folder: Path) -> Tuned:
        out, heard = folder / "out", list[Event]()
        return unchoke.tune(photos, minutes=0.05, out=out, on_event=heard.append, weights=str(tiny_weights), **SMALL), heard, out

    found: Tuned = kept("tuned", build)
    return found


def test_every_switch_has_a_verdict_with_its_reason(tuned: Tuned) -> None:
    result, heard, out = tuned
    frozen, trained = result.parts
    assert {one.switch for one in frozen.trials} == {
        *("engine", "decode_scale", "encode_batch", "engine_streams", "decode_threads"),
    }
    assert {"train_precision", "channels_last", "sub_batch", "workers", "compile"} <= {one.switch for one in trained.trials}
    assert all(one.reason for part in result.parts for one in part.trials)
    assert {one.switch: one.reason for one in trained.trials}["compile"] == "set: --no-compile"
    assert [event.detail for event in heard if isinstance(event, StageStarted)][-2:] == ["the frozen part", "training"]
    written = load_verdicts(Workspace(out), Settings(**{**SMALL, "weights": result.tuned.model.rpartition("weights ")[2]}))
    assert written == result.tuned
    assert written.found_on.keys() == {"device", "driver", "torch", "openvino", "unchoke"}


def test_answer_is_text_and_plain_values(tuned: Tuned) -> None:
    result, _, out = tuned
    text = result.to_text()
    assert all(one.switch in text for part in result.parts for one in part.trials)
    assert f"unchoke train {result.tuned.data}" in text
    plain = json.loads(json.dumps(result.to_dict()))
    assert [part["name"] for part in plain["parts"]] == ["the frozen part", "training"]
    assert plain["tuned"]["switches"].keys() == result.tuned.verdicts.keys()
    assert not list(out.glob(".unchoke-*"))


def test_once_all_is_tried_it_is_done(tuned: Tuned, tiny_weights: Path, tmp_path: Path) -> None:
    result, _, out = tuned
    workspace = Workspace(Path(shutil.copytree(out, tmp_path / "out")))
    slower = {name: Verdict(name, "refused", "not faster", 1, 2, 0.9, (0.8, 1.0)) for name in result.tuned.verdicts}
    save_verdicts(workspace, TuningVerdicts(result.tuned.model, result.tuned.data, "2026-01-01", result.tuned.found_on, slower))
    again = unchoke.tune(out=workspace.root, on_event=ignore, weights=str(tiny_weights), **SMALL)
    assert again.already_done
    assert all(part in again.to_text() for part in ("2026-01-01", "--again"))


def test_dry_run_keeps_nothing(photos: Path, tmp_path: Path) -> None:
    found = unchoke.tune(photos, out=tmp_path / "out", on_event=ignore, dry_run=True, cut="none")
    (part,) = found.parts
    assert {one.verdict for one in part.trials} == {"not tried"}
    assert not (tmp_path / "out" / "unchoke.toml").exists()


def test_no_time_and_masks_are_refused(photos: Path, tmp_path: Path) -> None:
    with refused("out-of-range", "--minutes 0"):
        unchoke.tune(photos, minutes=0, out=tmp_path, on_event=ignore)
    with refused("option-needs-masks", "pyramid"):
        unchoke.tune(photos, out=tmp_path, on_event=ignore, cut="pyramid")


PROBLEM = Problem("classification", ("a", "b"), np.arange(200) % 2, {"train": np.arange(200)}, [str(n) for n in range(200)])
KEPT = {
    "train_precision": "bf16",
    "channels_last": False,
    "sub_batch": 4,
    "eval_batch": 10,
    "threads": 1,
    "workers": 5,
    "keep_freed_memory": False,
    "compile": True,
}


def session_with(kept: Mapping[str, Any], folder: Path, heard: list[Event], *, found_with: str = "", **typed: Any) -> Session:
    settings = Settings(device="cpu", cut="-4", **typed)
    session = Session(Workspace(folder), settings, heard.append, MemoryWatch())
    verdicts = {
        name: Verdict(name, "kept", "1.3× as fast", None, value, 1.3, (1.2, 1.4), worth_from=1000 if name == "compile" else 0)
        for name, value in kept.items()
    }
    found_on = {**session.found_on, **({"torch": found_with} if found_with else {})}
    save_verdicts(session.workspace, TuningVerdicts(model_name(settings), settings.data, "2026-11-15", found_on, verdicts))
    return session


def test_training_uses_what_was_kept_and_says_so(tmp_path: Path) -> None:
    session = session_with(KEPT, tmp_path, [], epochs=10)
    loop = choose_loop(session, PROBLEM, TrainedPart(True, True, True))
    found = (loop.dtype, loop.memory_format, loop.sub_batch, loop.eval_batch, loop.threads, loop.keep_freed, loop.compile)
    assert found == ("bfloat16", "contiguous", 4, 10, 1, False, True)
    assert choose_feeding(session)[0] == 5
    reasons = {choice.name: choice.reason for choice in session.choices if choice.name in KEPT}
    assert reasons.keys() == KEPT.keys()
    assert all("2026-11-15" in reason and "1.3×" in reason for reason in reasons.values())


def test_typed_settings_win_and_compiling_must_repay(tmp_path: Path) -> None:
    session = session_with(KEPT, tmp_path, [], epochs=2, train_precision="f32", channels_last=True, sub_batch=16, workers=3)
    loop = choose_loop(session, PROBLEM, TrainedPart(True, True, True))
    assert (loop.dtype, loop.memory_format, loop.sub_batch, loop.compile) == ("float32", "channels_last", 16, False)
    assert choose_feeding(session)[0] == 3


def test_verdicts_of_another_torch_are_ignored(tmp_path: Path) -> None:
    heard: list[Event] = []
    session = session_with(KEPT, tmp_path, heard, found_with="1.0")
    assert choose_loop(session, PROBLEM, TrainedPart(True, True, True)).dtype == "float32"
    (note,) = [event for event in heard if isinstance(event, Note)]
    assert all(part in note.text for part in ("torch", "1.0", "unchoke tune"))


def test_extraction_uses_what_was_kept_and_keeps_to_it(photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    usual = {"encoder": TINY, "weights": str(tiny_weights), "device": "cpu", "input_px": 32, "workers": 1}
    settings = Settings(data=str(photos), **usual)
    session = Session(Workspace(tmp_path / "out"), settings, ignore, MemoryWatch())
    session.workspace.root.mkdir()
    kept = {"engine": "torch:f32", "encode_batch": 5, "decode_scale": "full"}
    verdicts = {name: Verdict(name, "kept", "1.3× as fast", None, value) for name, value in kept.items()}
    save_verdicts(session.workspace, TuningVerdicts(model_name(settings), str(photos), "2026-11-15", session.found_on, verdicts))
    first = extract(photos, out=session.workspace.root, on_event=ignore, **usual)
    chosen = {choice.name: choice for choice in first.choices}
    assert (chosen["engine"].value, chosen["encode_batch"].value, chosen["decode_scale"].value) == ("torch:f32", 5, "full")
    (choice,) = json.loads((session.workspace.engines / "choice.json").read_text()).values()
    assert choice["how"] == {"encode_batch": 5, "decode_scale": "full"}
    session.workspace.settings_file.unlink()
    again = extract(photos, out=session.workspace.root, on_event=ignore, **usual)
    assert (again.num_jobs, again.fingerprint) == (0, first.fingerprint)


def test_pixels_are_kept_where_that_was_faster(photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    usual = {"encoder": TINY, "weights": str(tiny_weights), "device": "cpu", "input_px": 32, "cut": "none"}
    settings = Settings(data=str(photos), **usual)
    session = Session(Workspace(tmp_path / "out"), settings, ignore, MemoryWatch())
    session.workspace.root.mkdir()
    verdicts = {"cache": Verdict("cache", "kept", "1.3× as fast", "disk", "ram")}
    save_verdicts(session.workspace, TuningVerdicts(model_name(settings), str(photos), "2026-11-15", session.found_on, verdicts))
    pictures = [Picture(file.name, str(file), "") for file in sorted(photos.rglob("*.jpg"))[:6]]
    prepared = prepare_pixels(session, pictures)
    assert prepared.source.cache.value == "ram" and "2026-11-15" in prepared.source.cache.reason
