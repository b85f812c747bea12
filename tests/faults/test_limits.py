"""Few descriptors, and two commands in one workspace."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest
import scene


@pytest.mark.parametrize(("engine", "workers"), [("openvino", "1"), ("torch", "2")])
def test_sixty_four_open_files_are_enough_for_more_shards_than_that(
    place: scene.Place, tmp_path: Path, engine: str, workers: str
) -> None:
    args = place.fit_args(tmp_path / "out", "--job-size", "1", "--workers", workers, engine=engine)
    ended = scene.unchoke("fit", *args, limits={resource.RLIMIT_NOFILE: 64})
    assert ended.code == 0, ended.stderr
    assert len(scene.shards(tmp_path / "out")) == 120
    again = scene.unchoke("evaluate", "--out", str(tmp_path / "out"), limits={resource.RLIMIT_NOFILE: 64})
    assert again.code == 0, again.stderr


def test_the_second_command_in_a_workspace_is_turned_away(place: scene.Place, finished: Path, checked: Path) -> None:
    args = place.fit_args(checked)
    first = scene.start("fit", *args)
    first.wait_until(lambda: "\nengine  " in first.stderr())
    first.send(signal.SIGSTOP)
    second = scene.unchoke("fit", *args)
    assert second.code == 2
    assert second.says_error("another command is working in", str(checked), f"process {first.pid}", "--out")
    as_json = scene.unchoke("extract", *args[:-6], "--json").result
    assert as_json["error"]["exit_code"] == 2

    first.send(signal.SIGCONT)
    ended = first.end()
    assert ended.code == 0, ended.stderr
    assert scene.outcome(checked) == scene.outcome(finished)


def test_a_killed_owner_leaves_the_workspace_free(place: scene.Place, checked: Path) -> None:
    args = place.fit_args(checked)
    first = scene.start("fit", *args)
    first.wait_until(lambda: "\nengine  " in first.stderr())
    first.kill()
    assert scene.unchoke("fit", *args).code == 0
