"""How a network is trained here: every setting of the loop that was not typed, chosen with its reason.

In: a session, what is learnt, and how much of the backbone trains. Out: a `LoopConfig`, each of its values told as a `Choice`.
What fits in memory is decided after this (`plan_memory.py`) and changes none of the numbers that training computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError
from unchoke.data.several_labels import MULTI_LABEL
from unchoke.features.cut import NONE, cut_network
from unchoke.features.encoders import Encoder
from unchoke.machine.backend import torch_device, why_not_compiled
from unchoke.machine.policy import LONG, SHORT, UNMEASURED
from unchoke.runs.session import Session
from unchoke.training.data import Problem
from unchoke.training.network.loop_config import USUAL_LR, LoopConfig
from unchoke.training.scoring.selection import automatic_weights, imbalance

_BODY_SHARE = 0.3
_EVAL_FACTOR = 4
_FEWEST_STEPS_TO_AVERAGE = 100
_USUAL_LR = Choice("lr", USUAL_LR, "the head's; a common rate for AdamW on a new linear layer", UNMEASURED)


class _Chooser:
    """Takes what was typed, or tells what was tuned or chosen instead."""

    def __init__(self, session: Session, *, num_samples: int) -> None:
        self._session = session
        self._num_samples = num_samples  # that the run will go through: some of what was tuned must first repay its set-up

    def __call__(self, name: str, value: Any, reason: str, **evidence: Any) -> Any:
        typed = getattr(self._session.settings, name, None)
        if typed is not None:
            return typed
        choice = self._session.tuned.choice(name, num_samples=self._num_samples) or Choice(name, value, reason, evidence)
        self._session.chose(choice)
        return choice.value

    def tuned(self, name: str, otherwise: Any) -> Any:
        """What was tuned, told as a choice; else `otherwise`, without a note."""
        choice = self._session.tuned.choice(name)
        if choice is None:
            return otherwise
        self._session.chose(choice)
        return choice.value


@dataclass(frozen=True)
class TrainedPart:
    """What the choices look at in the part of a backbone that trains; nothing of it does when all is frozen."""

    anything: bool
    batch_norm: bool
    convolutions: bool

    @classmethod
    def of(cls, encoder: Encoder, cut: str) -> TrainedPart:
        part = encoder.module if cut == NONE else cut_network(encoder, cut, verify=False).suffix
        return cls(
            anything=any(True for _ in part.parameters()),
            batch_norm=any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in part.modules()),
            convolutions=any(isinstance(module, nn.Conv2d) and not _cuts_patches(module) for module in part.modules()),
        )


def _cuts_patches(convolution: nn.Conv2d) -> bool:
    """Whether it only embeds patches side by side, as a transformer begins."""
    return convolution.stride == convolution.kernel_size != (1, 1)


def choose_loop(session: Session, problem: Problem, part: TrainedPart, *, usual_lr: Choice = _USUAL_LR) -> LoopConfig:
    """The loop for this problem and trained part on this machine; `usual_lr` is the head's rate where none was typed or tuned."""
    settings, policy = session.settings, session.policy
    if problem.kind in ("regression", MULTI_LABEL) and (settings.label_smoothing or settings.class_weights not in (None, "none")):
        raise UsageError(
            "label smoothing or class weights were asked for, and no classes are learnt",
            code="option-not-for-values",
            why="both concern classes of which a photo has one",
            try_="leave both out; where a preset has them: --class-weights none --label-smoothing 0",
        )
    num_train = len(problem.positions("train"))
    choose = _Chooser(session, num_samples=settings.epochs * num_train)
    batch_size = choose("batch_size", *_batch_size(num_train))
    num_steps = settings.epochs * -(-num_train // batch_size)
    lr = choose("lr", usual_lr.value, usual_lr.reason, **usual_lr.evidence)
    body_lr = lr * _BODY_SHARE if part.anything else 0.0
    compiled = bool(choose("compile", policy.compile, policy.choice("compile").reason, **UNMEASURED))
    if settings.compile and (why := why_not_compiled(torch_device(policy))):
        session.warn(f"--compile is left out: {why}")
        compiled = False
    if body_lr:
        session.chose(Choice("body_lr", body_lr, "pretrained blocks move more slowly than the new head", UNMEASURED))
    return LoopConfig(
        epochs=settings.epochs,
        batch_size=batch_size,
        sub_batch=min(settings.sub_batch or choose.tuned("sub_batch", batch_size), batch_size),
        eval_batch=choose("eval_batch", _EVAL_FACTOR * batch_size, "without gradients a larger batch fits"),
        lr=lr,
        body_lr=body_lr,
        weight_decay=choose("weight_decay", 0.02, "mild: the pretrained weights are near a good place", **UNMEASURED),
        layer_decay=choose("layer_decay", 0.8, "early layers are general and move less", **UNMEASURED) if body_lr else 1.0,
        warmup_epochs=choose("warmup", min(1.0, settings.epochs / 10), "a tenth of the epochs, at most one"),
        ema_decay=choose("ema", *_average(num_steps)),
        clip=choose("clip", 1.0, "one odd batch cannot undo what was learnt"),
        mixup=choose("mixup", 0.0, "off: few epochs rarely need it"),
        label_smoothing=_for_classes(problem, choose, "label_smoothing", 0.05, "keeps the network from being too sure"),
        class_weights=_class_weights(problem, choose),
        dtype=LONG[choose("train_precision", SHORT[policy.train_dtype], policy.choice("train_dtype").reason)],
        memory_format=_memory_format(session, choose, part.convolutions),
        compile=compiled,
        grad_ckpt=bool(choose("grad_ckpt", False, "activations are kept unless memory is too small for them")),
        batch_norm=_batch_norm(choose) if part.batch_norm else "frozen",
        patience=settings.patience or 0,
        threads=choose.tuned("threads", _threads()),
        seed=settings.seed,
        keep_freed=choose.tuned("keep_freed_memory", True),
    )


def choose_feeding(session: Session) -> tuple[int, bool]:
    """How many threads read ahead of training, and whether into pinned memory. Neither changes a number."""
    workers = session.tuned.choice("workers") if session.settings.workers is None else None
    pin = session.tuned.choice("pin_memory")
    for choice in (workers, pin):
        if choice is not None:
            session.chose(choice)
    return int(workers.value if workers else session.policy.workers), bool(pin.value if pin else session.policy.pin_memory)


def _batch_size(num_train: int) -> tuple[int, str]:
    size = next((size for size, least in ((32, 640), (16, 160), (8, 0)) if num_train >= least), 8)
    return size, f"{num_train:,} training samples: about {-(-num_train // size):,} steps an epoch"


def _average(num_steps: int) -> tuple[float, str]:
    """An average over the last tenth of the steps."""
    if num_steps < _FEWEST_STEPS_TO_AVERAGE:
        return 0.0, f"{num_steps} steps are too few to average weights over"
    return round(1 - 10 / num_steps, 5), f"the weights are averaged over about a tenth of {num_steps:,} steps"


def _for_classes(problem: Problem, choose: _Chooser, name: str, value: float, reason: str) -> float:
    return float(choose(name, value, reason, **UNMEASURED)) if problem.kind == "classification" else 0.0


def _class_weights(problem: Problem, choose: _Chooser) -> Any:
    if problem.kind != "classification":
        return "none"
    train = problem.targets[problem.positions("train")]
    weights = automatic_weights(train)
    uneven = f"the largest class is {imbalance(train):.1f} times the smallest"
    return choose("class_weights", weights, "the classes are of similar size" if weights == "none" else uneven)


def _memory_format(session: Session, choose: _Chooser, has_convolutions: bool) -> str:
    if session.settings.channels_last is None and not has_convolutions:
        return "contiguous"
    choice = session.policy.choice("memory_format")
    wanted = choose("channels_last", choice.value == "channels_last", choice.reason, **choice.evidence)
    return "channels_last" if wanted else "contiguous"


def _batch_norm(choose: _Chooser) -> str:
    reason = "pretrained statistics are kept: small batches estimate them badly, and parts of a batch then give equal gradients"
    return str(choose("batch_norm", "frozen", reason, **UNMEASURED))


def _threads() -> int:
    """torch's threads: all usable cores. Kept by a run, because sums split over other numbers of threads round differently."""
    import torch

    return int(torch.get_num_threads())
