"""Few descriptors, and two commands in one workspace."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest
import scene


@pytest.mark.parametrize(("engine", "workers"), [("openvino", "1"), pytest.param("torch", "2", marks=pytest.mark.campaign)])
def test_more_shards_than_open_files(place: scene.Place, tmp_path: Path, engine: str, workers: str) -> None:
    args = place.fit_args(tmp_path / "out", "--job-size", "1", "--workers", workers, engine=engine)
    ended = scene.unchoke("fit", *args, limits={resource.RLIMIT_NOFILE: 64})
    assert ended.code == 0, ended.stderr
    assert len(scene.shards(tmp_path / "out")) == 120
    again = scene.unchoke("evaluate", "--out", str(tmp_path / "out"), limits={resource.RLIMIT_NOFILE: 64})
    assert again.code == 0, again.stderr


def test_second_command_in_a_workspace(place: scene.Place, finished: Path, checked: Path) -> None:
    args = place.fit_args(checked)
    first = scene.start("fit", *args)
    first.wait_until(lambda: "\nengine  " in first.stderr())
    first.send(signal.SIGSTOP)
    second = scene.unchoke("fit", *args)
    assert second.code == 2
    assert second.says_error("workspace-in-use", str(checked), str(first.pid), "--out")
    as_json = scene.unchoke("extract", *args[:-6], "--json").result
    assert (as_json["error"]["exit_code"], as_json["error"]["code"]) == (2, "workspace-in-use")

    first.send(signal.SIGCONT)
    ended = first.end()
    assert ended.code == 0, ended.stderr
    assert scene.outcome(checked) == scene.outcome(finished)


def test_killed_owner_leaves_the_workspace_free(place: scene.Place, checked: Path) -> None:
    args = place.fit_args(checked)
    first = scene.start("fit", *args)
    first.wait_until(lambda: "\nengine  " in first.stderr())
    first.kill()
    assert scene.unchoke("fit", *args).code == 0
