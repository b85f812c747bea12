"""What the page asks of models and features: also where the newest model is no head on what is cached."""

from __future__ import annotations

from pathlib import Path

import pytest

from unchoke.commands.fit import train
from unchoke.commands.page_answers import PageAnswers
from unchoke.core.errors import UsageError
from unchoke.core.events import ignore
from unchoke.core.workspace import Workspace


def test_the_most_alike_leave_the_photo_itself_out_and_come_in_order(workspace: Path) -> None:
    found = PageAnswers(Workspace(workspace)).similar("apple/apple 00.jpg").photos
    assert len(found) == 24
    assert "apple/apple 00.jpg" not in {one.sample_id for one in found}
    assert [one.cosine for one in found] == sorted((one.cosine for one in found), reverse=True)
    assert found[0].sample_id.startswith("apple/")


def test_a_photo_without_features_and_a_workspace_without_any_say_so(workspace: Path, tmp_path: Path) -> None:
    assert "no cached features" in PageAnswers(Workspace(workspace)).similar("nowhere.jpg").why_not
    assert "unchoke fit" in PageAnswers(Workspace(tmp_path / "none")).similar("nowhere.jpg").why_not


def test_without_a_run_there_is_nobody_to_ask(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no model to ask"):
        PageAnswers(Workspace(tmp_path)).ask(b"\xff\xd8\xff")


@pytest.mark.system
def test_a_network_answers_and_the_run_whose_features_are_cached_says_what_is_near(workspace: Path, photos: Path) -> None:
    data = (photos / "plum" / "plum 03.jpg").read_bytes()
    answers = PageAnswers(Workspace(workspace))
    before = answers.ask(data)
    assert (before.run, before.note) == ("exp_1", "")
    train(out=workspace, on_event=ignore, cut="-1", epochs=1, workers=1)
    after = answers.ask(data)
    assert (after.run, after.note) == ("exp_2", "Nearest as exp_1 sees them.")
    assert after.nearest == before.nearest
    assert answers.ask(data) == after
