"""Heads that are trained step by step: their updates are torch's, and their learning rate."""

from __future__ import annotations

import numpy as np
import torch

from unchoke.core.clock import NO_PROFILER, Clock, Loading
from unchoke.core.mixing import hash_ids
from unchoke.training.data import fit_standardiser
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.stepped import SteppedHead, scheduled_lr
from unchoke.training.sampling import Rows, Scaler
from unchoke.training.scoring.selection import DeviceTargets


def test_the_rate_warms_up_and_falls_to_nearly_nothing():
    config = HeadConfig(lr=1.0)
    rates = [scheduled_lr(config, step=step, num_steps=100) for step in range(100)]
    peak = rates.index(max(rates))
    assert peak == 5
    assert rates[5] == 1.0
    assert rates[:6] == sorted(rates[:6])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert 0 < rates[-1] < 0.001


def test_a_training_of_one_step_still_has_a_rate():
    assert scheduled_lr(HeadConfig(lr=1.0), step=0, num_steps=1) > 0


def test_updates_equal_torchs_adamw(mixture):
    source, problem = mixture()
    cpu, train = torch.device("cpu"), problem.positions("train")
    rows = Rows(source, train, Scaler.on(cpu, fit_standardiser(source, train)))
    config = HeadConfig("mlp", hidden=5, weight_decay=0.5, batch_size=32)
    watched = {"clock": Clock(), "loading": Loading(), "profiler": NO_PROFILER}
    head = SteppedHead(rows, DeviceTargets.of(problem, device=cpu), config, hash_ids(["a"] * len(train)), saved=None, **watched)
    copies = {name: torch.nn.Parameter(tensor.detach().clone()) for name, tensor in head.params.items()}
    groups = [
        {"params": [one for name, one in copies.items() if name.endswith("weight") == decays], "weight_decay": 0.5 * decays}
        for decays in (True, False)
    ]
    torchs = torch.optim.AdamW(groups)
    generator = np.random.default_rng(0)
    for step in range(6):
        slopes = [torch.from_numpy(generator.normal(size=one.shape).astype(np.float32)) for one in copies.values()]
        for one, slope in zip(copies.values(), slopes, strict=True):
            one.grad = slope.clone()
        rate = 0.1 / (step + 1)
        for group in torchs.param_groups:
            group["lr"] = rate
        torchs.step()
        head._update(slopes, rate, count=step + 1)
    for name, tensor in head.params.items():
        torch.testing.assert_close(tensor.detach(), copies[name].detach(), rtol=1e-5, atol=1e-6)
