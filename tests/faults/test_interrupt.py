"""Ctrl-C: what is in flight is finished, the exit code is 130, and the same command goes on to the same bytes."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import pytest
import scene

LONG_TRAINING = ("--epochs", "600", "--patience", "0")


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.campaign)])
def test_during_extraction(place: scene.Place, finished: Path, checked: Path, workers: str) -> None:
    args = place.fit_args(checked, "--workers", workers)
    running = scene.start("fit", *args)
    running.wait_until(lambda: len(scene.done_files(checked)) >= 2)
    running.send(signal.SIGINT)
    ended = running.end()
    assert ended.code == 130, ended.stderr
    assert ended.says_error("interrupted", "15 jobs")
    before = scene.done_files(checked)
    assert 2 <= len(before) < 15
    assert len(scene.shards(checked)) == len(before), "a job in flight was not finished"

    assert scene.unchoke("fit", *args).code == 0
    after = scene.done_files(checked)
    assert len(after) == 15
    assert {name: after[name] for name in before} == before
    assert scene.outcome(checked) == scene.outcome(finished)


def test_during_training(place: scene.Place, copied: Path, tmp_path: Path) -> None:
    shutil.copytree(copied, tmp_path / "unbroken")
    whole = scene.start("fit", *place.fit_args(tmp_path / "unbroken", *LONG_TRAINING))
    running = scene.start("fit", *place.fit_args(copied, *LONG_TRAINING))
    running.wait_until(lambda: "\ntrain  " in running.stderr())
    time.sleep(0.1)
    running.send(signal.SIGINT)
    ended = running.end()
    assert ended.code == 130, ended.stderr
    assert ended.says_error("interrupted", "epoch")
    assert scene.unchoke("runs", "list", "--out", str(copied), "--json").result["result"]["runs"][1]["status"] == "interrupted"

    assert scene.unchoke("fit", *place.fit_args(copied, *LONG_TRAINING)).code == 0
    assert whole.end().code == 0
    assert scene.outcome(copied, run="exp_2") == scene.outcome(tmp_path / "unbroken", run="exp_2")


@pytest.mark.parametrize("stage", ["check", "engine"])
def test_before_any_work(place: scene.Place, checked: Path, stage: str) -> None:
    running = scene.start("fit", *place.fit_args(checked))
    running.wait_until(lambda: f"\n{stage}  " in running.stderr())
    running.send(signal.SIGINT)
    ended = running.end()
    assert ended.code == 130, ended.stderr
    assert ended.says_error("interrupted")


def test_second_request_during_a_job(place: scene.Place, tmp_path: Path) -> None:
    one_long_job = ("--job-size", "120", "--views", "64", "--workers", "2")
    running = scene.start("fit", *place.fit_args(tmp_path / "out", *one_long_job, engine="openvino"))
    running.wait_until(lambda: "\nextract  " in running.stderr())
    time.sleep(0.05)
    running.send(signal.SIGINT)
    running.wait_until(lambda: "jobs in flight are being finished" in running.stderr())
    running.send(signal.SIGINT)
    ended = running.end()
    assert ended.code == 130, ended.stderr
    assert "terminate called" not in ended.stderr
    assert scene.done_files(tmp_path / "out") == {}, "the job was finished: nothing was interrupted"
