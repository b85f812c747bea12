"""What the page asks of models and features: also where the newest model is no head on what is cached."""

from __future__ import annotations

from pathlib import Path

from errors import refused
from unchoke.core.events import ignore
from unchoke.core.workspace import Workspace
from unchoke.page.page_answers import PageAnswers
from unchoke.training.fit import train


def test_similar_photos_come_in_order_without_itself(finished: Path) -> None:
    found = PageAnswers(Workspace(finished)).similar("apple/apple 00.jpg").photos
    assert len(found) == 24
    assert "apple/apple 00.jpg" not in {one.sample_id for one in found}
    assert [one.cosine for one in found] == sorted((one.cosine for one in found), reverse=True)
    assert found[0].sample_id.startswith("apple/")


def test_without_features_there_is_a_reason(finished: Path, tmp_path: Path) -> None:
    assert PageAnswers(Workspace(finished)).similar("nowhere.jpg").why_not
    assert "unchoke fit" in PageAnswers(Workspace(tmp_path / "none")).similar("nowhere.jpg").why_not


def test_without_a_run_there_is_nobody_to_ask(tmp_path: Path) -> None:
    with refused("no-finished-run"):
        PageAnswers(Workspace(tmp_path)).ask(b"\xff\xd8\xff")


def test_network_answers_with_neighbours_of_cached_features(workspace: Path, photos: Path) -> None:
    data = (photos / "plum" / "plum 03.jpg").read_bytes()
    answers = PageAnswers(Workspace(workspace))
    before = answers.ask(data)
    assert (before.run, before.note) == ("exp_1", "")
    train(out=workspace, on_event=ignore, cut="none", epochs=1, workers=1)
    after = answers.ask(data)
    assert after.run == "exp_2" and "exp_1" in after.note
    assert after.nearest == before.nearest
    assert answers.ask(data) == after
