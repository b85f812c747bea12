"""`--detach` and `runs watch` as they are typed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from unchoke.core.workspace import Workspace

if TYPE_CHECKING:
    from tests.cli.conftest import Type

SCRIPT = Path(sys.executable).with_name("unchoke")
NOTE = '{"schema": 1, "event": "note", "text": "half way", "level": "info"}'


def test_a_detached_command_is_watched_to_the_same_end(unchoke: Type, workspace: Path) -> None:
    for command in ("fit", "train"):
        started = unchoke(command, "--out", workspace, "--detach", "--json")
        assert started.code == 0, started.stdout
        assert started.last["command"] == command
        assert Path(started.result["log"]).parent == workspace / "logs"
        watched = unchoke("runs", "watch", "--out", workspace, "--json")
        assert (watched.code, watched.stderr, watched.last["command"]) == (0, "", "runs watch")
        assert (watched.result["run"], watched.result["already_done"]) == ("exp_1", True)
        written = Path(started.result["log"]).read_text().splitlines()
        assert watched.stdout.splitlines()[:-1] == written[:-1]
        assert json.loads(written[-1])["result"] == watched.result
    text = unchoke("runs", "watch", "--out", workspace)
    assert "exp_1" in text.stdout
    assert "encoder test_resnet" in text.stderr


def test_a_rehearsal_is_not_detached(unchoke: Type, workspace: Path) -> None:
    answer = unchoke("fit", "--out", workspace, "--detach", "--dry-run")
    assert (answer.code, answer.stdout) == (2, "")
    assert not list(Workspace(workspace).logs.glob("*-fit.*"))  # but for what the fit before told of itself


def test_nothing_to_watch_is_2(unchoke: Type, tmp_path: Path) -> None:
    assert unchoke("runs", "watch", "--out", tmp_path).code == 2


def test_ctrl_c_stops_the_watching_and_not_the_run(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as run:
        log = Workspace(tmp_path).logs / "20261115T120000-fit.jsonl"
        log.parent.mkdir()
        log.write_text(NOTE + "\n")
        created_s = psutil.Process(run.pid).create_time()
        log.with_suffix(".json").write_text(json.dumps({"command": "unchoke fit", "pid": run.pid, "created_s": created_s}))
        command = [SCRIPT, "runs", "watch", "--out", tmp_path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
            assert watching.stderr is not None
            assert "half way" in watching.stderr.readline()
            watching.send_signal(signal.SIGINT)
            stdout, stderr = watching.communicate()
        assert (watching.returncode, stdout) == (130, "")
        assert str(run.pid) in stderr
        assert f"unchoke runs watch --out {tmp_path}" in stderr
        assert run.poll() is None
        run.kill()
