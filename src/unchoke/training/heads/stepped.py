"""One head that is trained step by step with AdamW. Every random draw is a function of (seed, epoch, batch)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from unchoke.core.clock import Clock, Loading, LoopProfiler
from unchoke.core.fingerprint import hash_int
from unchoke.core.mixing import Hashes
from unchoke.data.several_labels import MULTI_LABEL
from unchoke.machine.backend import send
from unchoke.training.heads.heads import HeadConfig, Params, forward, init_params
from unchoke.training.sampling import Rows, epoch_order, epoch_views
from unchoke.training.scoring.selection import DeviceTargets

_WARMUP_SHARE = 0.05
_MOMENTS = ("first", "second")


class SteppedHead:
    """A head in training, with the moments of its optimizer."""

    def __init__(
        self,
        rows: Rows,
        task: DeviceTargets,
        config: HeadConfig,
        hashes: Hashes,
        *,
        saved: dict[str, Any] | None,
        clock: Clock,
        loading: Loading,
        profiler: LoopProfiler,
    ) -> None:
        """`hashes` are those of the rows' sample ids; `saved` is the `state` of an earlier process."""
        self._rows, self._task, self._config, self._hashes = rows, task, config, hashes
        self._clock, self._loading, self._profiler = clock, loading, profiler
        begin = init_params(config, dim=rows.source.dim, num_outputs=task.num_outputs)
        begin = saved["params"] if saved else {**begin, "bias": task.first_bias(config.class_weights)}
        self.params: Params = {name: tensor.to(task.device).clone().requires_grad_(True) for name, tensor in begin.items()}
        zeros = {name: torch.zeros_like(tensor) for name, tensor in self.params.items()}
        moments = ({name: tensor.to(task.device) for name, tensor in saved[one].items()} if saved else zeros for one in _MOMENTS)
        self._first, self._second = ({name: tensor.detach().clone() for name, tensor in one.items()} for one in moments)
        self._class_weights = None if config.class_weights == "none" else task.class_weights(config.class_weights)
        self._num_batches = math.ceil(len(rows.positions) / config.batch_size)

    def run_epoch(self, epoch: int) -> float:
        """Train for one epoch, from 0 on; the mean training loss, smoothing, weights and mix-up included."""
        config, clock, source = self._config, self._clock, self._rows.source
        order, views = epoch_order(self._hashes, seed=config.seed, epoch=epoch), None
        if config.kind != "attention":
            views = epoch_views(self._hashes, seed=config.seed, epoch=epoch, num_views=source.num_views)[order]
        shares = np.ones(self._num_batches, np.float32)
        if config.mixup:
            generator = np.random.Generator(np.random.PCG64(hash_int(config.seed, "mixup", epoch)))
            shares = generator.beta(config.mixup, config.mixup, size=self._num_batches).astype(np.float32)
        total = torch.zeros((), device=self._task.device)
        stream = clock.each("wait", self._rows.batches(order, views=views, batch_size=config.batch_size))
        for number, (feats, where) in enumerate(stream):
            rate = scheduled_lr(config, step=epoch * self._num_batches + number, num_steps=config.epochs * self._num_batches)
            with clock.stage("forward"):
                dropout = self._dropout(len(feats), epoch, number)
                loss = self._loss(feats, self._task.targets[where], float(shares[number]), dropout)
            with clock.stage("backward"):
                slopes = torch.autograd.grad(loss, list(self.params.values()))
            with clock.stage("optimizer"):
                self._update(slopes, rate, count=epoch * self._num_batches + number + 1)
                total += loss.detach() * len(feats)
            self._profiler.step(clock, self._loading)
        return float(total) / len(order)

    @torch.no_grad()
    def _update(self, slopes: Sequence[torch.Tensor], rate: float, *, count: int) -> None:
        """AdamW by torch's fused kernel, called as `torch.optim` does: importing that brings torch's compiler along."""
        counted = torch.full((), float(count), device=self._task.device)
        for (name, tensor), slope in zip(self.params.items(), slopes, strict=True):
            torch._fused_adamw_(
                [tensor],
                [slope.contiguous()],  # the kernel walks memory in order
                [self._first[name]],
                [self._second[name]],
                [],
                [counted],
                lr=rate,
                beta1=0.9,
                beta2=0.999,
                weight_decay=self._config.weight_decay if name.endswith("weight") else 0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )

    def _dropout(self, num_rows: int, epoch: int, batch: int) -> torch.Tensor | None:
        config = self._config
        if config.kind == "linear" or not config.dropout:
            return None
        generator = torch.Generator().manual_seed(hash_int(config.seed, "dropout", epoch, batch) >> 1)
        draw = send(torch.rand((num_rows, config.hidden), generator=generator), self._task.device)
        return (draw >= config.dropout) / (1 - config.dropout)

    def _loss(self, feats: torch.Tensor, targets: torch.Tensor, mix: float, dropout: torch.Tensor | None) -> torch.Tensor:
        """The mean loss; with mix-up, that against each of the two targets in its share."""
        outputs = forward(self._config.kind, self.params, feats, mix=mix, dropout=dropout)
        if self._task.kind == "classification":
            outputs = outputs.log_softmax(-1)

        def against(wanted: torch.Tensor) -> torch.Tensor:
            if self._task.kind == "regression":
                return (outputs - wanted).square().mean(-1)
            if self._task.kind == MULTI_LABEL:
                return F.binary_cross_entropy_with_logits(outputs, wanted, reduction="none").mean(-1)
            gained = outputs.gather(-1, wanted[:, None])[:, 0]
            if self._config.label_smoothing:
                gained = torch.lerp(gained, outputs.mean(-1), self._config.label_smoothing)
            return -gained if self._class_weights is None else -gained * self._class_weights[wanted]

        losses = against(targets)
        return (losses if mix == 1.0 else torch.lerp(against(targets.flip(0)), losses, mix)).mean()

    @torch.no_grad()
    def outputs(self, feats: torch.Tensor) -> torch.Tensor:
        """Without dropout or mix-up."""
        return forward(self._config.kind, self.params, feats)

    def pace(self, epoch: int) -> dict[str, float]:
        """How this epoch went, for the curve: the learning rate at its end."""
        steps = self._num_batches
        return {"lr": scheduled_lr(self._config, step=(epoch + 1) * steps - 1, num_steps=self._config.epochs * steps)}

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs."""
        return {"params": self.params, "first": self._first, "second": self._second}


def scheduled_lr(config: HeadConfig, *, step: int, num_steps: int) -> float:
    """A linear warm-up over the first twentieth, then half a cosine down to zero."""
    warmup = max(1, round(num_steps * _WARMUP_SHARE))
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1, num_steps - warmup)))
