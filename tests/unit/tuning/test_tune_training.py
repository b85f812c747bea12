"""Real steps over real pictures: wrong tricks are found out, right ones are equal, and every way starts from the same weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import TINY
from torch.nn import functional as F

from unchoke.core.events import ignore
from unchoke.core.tuned import Verdict
from unchoke.features.prepare_engine import open_encoder
from unchoke.runs.session import Session, open_session
from unchoke.tuning.switches import train_switches
from unchoke.tuning.trials import Deadline, PartTuner, Switch
from unchoke.tuning.tune_data import circumstances, pixel_source, take_sample, training_job
from unchoke.tuning.tune_training import TrainSetup, TrainWork

Prepared = tuple[Session, TrainWork, TrainSetup]


@pytest.fixture(scope="module")
def prepared(
    photos: Path, tiny_weights: Path, tmp_path_factory: pytest.TempPathFactory, one_torch_thread: None
) -> Iterator[Prepared]:
    """Training of a whole tiny network on a few photos, ready to be done in several ways."""
    out = tmp_path_factory.mktemp("tune")
    typed = {"data": str(photos), "encoder": TINY, "weights": str(tiny_weights), "cut": "none", "device": "cpu", "input_px": 64}
    with open_session(typed, out=out, on_event=ignore) as session:
        sample, encoder = take_sample(session, num=16), open_encoder(session)
        job = training_job(session, sample, encoder, pixel_source(session, sample, encoder))
        work = TrainWork(job, folder=out / "trials")
        now = TrainSetup.of(job)
        work.calibrate(now, budget_s=1)
        assert work.steps >= 1
        assert work.block_s > 0
        work.steps = 1  # the shortest pieces will do: what is tested is what becomes of the answer
        yield session, work, now


PART = 4
"""Samples in the parts that a step is divided into: convolutions of so many are tampered with, others are not."""
right = F.conv2d


def mirrored_kernels(x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    """As fast, and nearly right."""
    return right(x, weight.flip(-1), *rest)


def forgotten_padding(x: torch.Tensor, weight: Any, bias: Any, stride: Any, padding: Any, *rest: Any) -> torch.Tensor:
    """Pads with the edge instead of zeros: right everywhere but at the border."""
    wide = [side for pair in reversed(padding) for side in (pair, pair)] if padding != "same" else [0, 0, 0, 0]
    return right(F.pad(x, wide, mode="replicate"), weight, bias, stride, 0, *rest)


def slow_but_right(*args: Any) -> torch.Tensor:
    time.sleep(0.005)
    return right(*args)


def judged(prepared: Prepared, monkeypatch: pytest.MonkeyPatch, planted: Callable[..., torch.Tensor]) -> Verdict:
    """What tuning says of smaller parts, where their convolutions are computed in a planted way."""
    _, work, now = prepared
    monkeypatch.setattr(F, "conv2d", lambda x, *rest: (planted if len(x) == PART else right)(x, *rest))
    tuner = PartTuner("training", work, deadline=Deadline(60), on_event=ignore, warn=print)
    monkeypatch.setattr(work, "calibrate", lambda *_, **__: None)
    (verdict,) = tuner.run(now, now.plain(work.batch_size), lambda _: [Switch("sub_batch", (PART,))]).trials
    return verdict


@pytest.mark.parametrize("planted", [mirrored_kernels, forgotten_padding])
def test_wrong_convolution_is_refused(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, planted: Callable[..., torch.Tensor]
) -> None:
    verdict = judged(prepared, monkeypatch, planted)
    assert verdict.verdict == "refused"
    assert verdict.ratio is None and verdict.equality["outputs"] > 0, "it was not even timed"


def test_right_convolution_that_is_slower_is_refused(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(prepared, monkeypatch, slow_but_right)
    assert verdict.verdict == "refused"
    assert verdict.ratio is not None and verdict.ratio < 1
    assert verdict.equality["gradient_cosine"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("channels_last", False), ("sub_batch", 4), ("threads", 2), ("cache", "none"), ("keep_freed_memory", False), ("workers", 0)],
)
def test_usual_switches_change_nothing_beyond_rounding(prepared: Prepared, name: str, value: Any) -> None:
    _, work, now = prepared
    found = work.alike(replace(now, **{name: value}))
    assert found.equal, found.text
    work.let_go()


def test_bfloat16_is_close_but_not_equal_as_float32_is(prepared: Prepared) -> None:
    _, work, now = prepared
    found = work.alike(replace(now, train_precision="bf16"))
    assert found.equal, found.text
    assert found.figures["outputs"] > 1e-3


def test_a_trial_apart_gives_the_same_answer_or_is_ended(prepared: Prepared) -> None:
    _, work, now = prepared
    trick = replace(now, sub_batch=PART)
    assert "--minutes" in work.attempt_apart(now, trick, budget_s=0.05).why_not
    found = work.attempt_apart(now, trick, budget_s=120)
    assert found.likeness.equal
    assert found.compared is not None


def test_switches_follow_from_machine_and_settings(prepared: Prepared) -> None:
    session, work, now = prepared
    sample = take_sample(session, num=8)
    about = circumstances(session, sample, open_encoder(session), work.job)
    found = {one.name: one for one in train_switches(session.settings, now, about)}
    assert found["pin_memory"].why_not and not found["channels_last"].why_not
    assert found["cache"].values == ("ram", "none")
    set_by_hand = replace(session.settings, channels_last=False, train_precision="f32", workers=3)
    fixed = {one.name: one.why_not for one in train_switches(set_by_hand, now, about)}
    assert (fixed["channels_last"], fixed["train_precision"]) == ("set: --no-channels-last", "set: --train-precision f32")
    assert fixed["workers"] == "set: --workers 3"
