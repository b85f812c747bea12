"""`unchoke encoders`: the same sample for all, the test split untouched, the choice kept where that is wanted."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from errors import refused
from unchoke.core.errors import MachineError
from unchoke.core.events import Event, Progress, StageStarted, ignore
from unchoke.core.remembered import load_remembered
from unchoke.core.settings import Settings
from unchoke.core.workspace import Workspace
from unchoke.features.encoders import DEFAULT_ENCODER
from unchoke.tuning import compare_encoders
from unchoke.tuning.compare_encoders import candidates, encoders, spread

TINY = "test_resnet"


def test_two_encoders_are_compared_and_the_choice_is_kept(workspace: Path) -> None:
    told: list[Event] = []
    first = encoders(encoders=[TINY, DEFAULT_ENCODER], out=workspace, on_event=ignore)
    result = encoders(encoders=f"{TINY},{DEFAULT_ENCODER}", keep=True, out=workspace, on_event=told.append)
    assert [score.to_dict() for score in result.scores] == [score.to_dict() for score in first.scores]
    assert not [event for event in told if isinstance(event, StageStarted) and event.stage in ("engine", "extract")]
    assert {event.total for event in told if isinstance(event, Progress) and event.stage == "encoders"} == {2}
    found = {(score.encoder, score.cut): score for score in result.scores}
    assert set(found) == {(name, cut) for name in (TINY, DEFAULT_ENCODER) for cut in ("end", "blocks")}
    assert (found[TINY, "end"].photo_bytes, found[DEFAULT_ENCODER, "blocks"].photo_bytes) == (2 * 96, 2 * 2224)
    assert result.figure == "accuracy"
    assert 0 < result.constant < 1
    page = result.page.read_text()
    assert all(name in page for name in ("<svg", TINY, DEFAULT_ENCODER))
    assert "http://" not in page.replace("http://www.w3.org", "")
    json.dumps(result.to_dict())
    remembered = load_remembered(Workspace(workspace))
    picked = result.choice.evidence
    assert remembered.get("encoder", Settings().encoder) == picked["encoder"]
    assert remembered.get("cut", "blocks") == picked["cut"]
    assert ("weights" in remembered) == (picked["encoder"] == TINY), "weights of another encoder stay behind"
    assert result.choice.reason in " ".join(result.to_text().split())


def test_no_photo_of_the_test_split_is_looked_at(finished: Path) -> None:
    manifest = pd.read_csv(finished / "manifest.csv")
    frame = manifest[["sample_id", "split", "label"]]
    chosen = spread(frame, num=1000, by="label")
    assert chosen == set(frame["sample_id"][frame["split"] != "test"])


def test_sample_holds_classes_in_proportion_and_grows() -> None:
    frame = pd.DataFrame({"sample_id": [f"{place}" for place in range(400)], "split": "train"})
    frame["label"] = ["rare" if place % 4 == 0 else "common" for place in range(400)]
    small, large = (spread(frame, num=num, by="label") for num in (40, 80))
    assert small < large
    assert sum(frame.set_index("sample_id")["label"][list(small)] == "rare") == 10


def test_left_out_those_that_are_installed_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_encoders, "installed_encoders", lambda: (DEFAULT_ENCODER, "other"))
    assert list(candidates(Settings(data="x"), [])) == [DEFAULT_ENCODER, "other"]
    assert list(candidates(Settings(data="x", encoder="mine"), [])) == ["mine", DEFAULT_ENCODER, "other"]
    assert list(candidates(Settings(data="x", encoder="mine"), ["b", "a", "b"])) == ["b", "a"]


@pytest.mark.parametrize("typed", [",", " ", [""]])
def test_a_list_that_names_nothing_is_refused(workspace: Path, typed: str | list[str]) -> None:
    with refused("no-encoders-named"):
        encoders(encoders=typed, out=workspace, on_event=ignore)


def test_an_unknown_encoder_is_refused_before_any_work(workspace: Path) -> None:
    with refused("unknown-encoder", "nobody"):
        encoders(encoders=[TINY, "nobody"], out=workspace, on_event=ignore)


def test_encoder_without_weights_is_passed_over(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = compare_encoders._Comparison._scores

    def scores(self: object, name: str) -> object:
        if name == "resnet18":
            raise MachineError("no weights of resnet18", code="hub-unreachable", why="no network", try_="go online")
        return real(self, name)  # type: ignore[arg-type]

    monkeypatch.setattr(compare_encoders._Comparison, "_scores", scores)
    result = encoders(encoders=[TINY, "resnet18"], out=workspace, on_event=ignore)
    assert "no network" in result.skipped["resnet18"]
    assert "resnet18" in result.to_text()
    assert load_remembered(Workspace(workspace)).get("cut", "blocks") == "blocks", "nothing is kept unasked"
    with refused("no-encoder-usable"):
        encoders(encoders=["resnet18"], out=workspace, on_event=ignore)


def test_time_that_is_spent_leaves_the_others_untried(workspace: Path) -> None:
    result = encoders(encoders=[TINY, DEFAULT_ENCODER], minutes=0.001, out=workspace, on_event=ignore)
    assert {score.encoder for score in result.scores} == {TINY}
    assert "0.001" in result.skipped[DEFAULT_ENCODER]
