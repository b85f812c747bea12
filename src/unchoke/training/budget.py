"""`unchoke budget`: what batch fits here, and how fast it is. Needs no data and changes nothing.

In: a network, where it is cut, and perhaps a limit. Out: a `BudgetResult`: the largest batch that fits in training (with and
without gradient checkpointing) and in evaluation, what its memory is made of, and with `benchmark` the speed of every size tried.
Sizes run for real, with random weights and noise for pictures, in a process of their own; see `memory_trial.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from unchoke.core.choices import Choice
from unchoke.core.events import Chosen, OnEvent
from unchoke.core.settings import Settings, validate
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.memory.memory_plan import (
    MemoryPlan,
    MemoryRoom,
    StepCost,
    aligned,
    choose_limit,
    does_not_fit,
    largest_fitting,
    make_plan,
    render_costs,
    render_plan,
)
from unchoke.runs.session import default_listener
from unchoke.training.count_operations import OperationBudget, count_operations

if TYPE_CHECKING:
    from unchoke.machine.memory.memory_plan import MemoryLimit
    from unchoke.machine.policy import Policy
    from unchoke.training.network.memory_trial import MemoryTrial, Way

_DEFAULT_CUT = "none"
_MOST = 1024
_LONGEST_STEP_S = 4.0
_TIMED_STEPS = 6
_CLASSES = 10
_ONE_TILE = "1×(1×1)"


@dataclass(frozen=True)
class BudgetResult:
    """`fits` is the largest batch that fits at once, by way of running; 0 where not even one sample does."""

    about: dict[str, Any]
    """What was asked: network, cut, device and limit."""
    plan: MemoryPlan
    """How a batch would be run, and what its memory is made of."""
    fits: dict[str, int]
    """The largest batch that fits at once, by way of running; 0 where not even one sample does."""
    measured: dict[str, list[StepCost]]
    """Every size that was tried and ran, by way of running."""
    benchmark: bool = False
    """Whether every size was timed as well."""
    choices: list[Choice] = field(default_factory=list)
    """What was chosen, with reasons."""
    operations: list[OperationBudget] = field(default_factory=list)
    """What extraction, heads and masks would take: counted, not measured."""

    @property
    def speeds(self) -> dict[str, list[dict[str, Any]]]:
        """Images per second of every size that was tried, by way of running."""
        return {
            way: [{"batch": one.batch, "images_per_s": _rate(one), "peak_bytes": one.peak_bytes} for one in costs]
            for way, costs in self.measured.items()
            if costs
        }

    @property
    def fastest(self) -> dict[str, int]:
        """The batch that got most images through in a second, by way of running."""
        return {way: max(costs, key=_rate).batch for way, costs in self.measured.items() if costs}

    def to_dict(self) -> dict[str, Any]:
        timed = {"images_per_s": self.speeds, "fastest": self.fastest} if self.benchmark else {}
        return {
            **self.about,
            "fits": self.fits,
            **timed,
            "memory": {"planned_bytes": self.plan.planned_bytes, "limit_bytes": self.plan.limit_bytes},
            "plan": self.plan.to_dict(),
            "choices": [choice.to_dict() for choice in self.choices],
            "operations": [one.to_dict() for one in self.operations],
        }

    def to_text(self) -> str:
        from unchoke.training.network.plan_memory import WAYS

        about, words = self.about, {str(way): said for way, said in WAYS.items()}
        trained = f"{about['num_trained']} of {about['num_blocks']} blocks" if about["num_blocks"] else "no blocks counted"
        shown = f"{about['input_px']} px" + ("" if about["tiles"] == _ONE_TILE else f", {about['tiles']} tiles")
        head = f"{about['encoder']}, --cut {about['cut']} ({trained} train), {shown}, {about['precision']} on {about['device']}"
        limit = ("limit", f"{format_bytes(self.plan.limit_bytes)} ({about['limit_reason']})")
        fits = [(words[way], self._answer(way)) for way in self.fits]
        lines = [head, "", "What fits", *aligned([limit, *fits]), "", render_plan(self.plan)]
        if self.operations:
            counted = aligned([(one.operation, one.text) for one in self.operations])
            lines += ["Other operations, counted and not measured", *counted, ""]
        lines += [line for way, costs in self.measured.items() for line in render_costs(words[way], costs)]
        return "\n".join(lines) + "\n"

    def _answer(self, way: str) -> str:
        largest, costs = self.fits[way], self.measured[way]
        if not largest:
            return "not even one sample"
        tried = max(one.batch for one in costs)
        beyond = "" if largest <= tried else f", by the line through what was measured up to {tried}"
        fastest = next(one for one in costs if one.batch == self.fastest[way])
        quickest = f"; fastest at {fastest.batch}: {_rate(fastest):,.1f} images/s" if self.benchmark else ""
        return f"{format_count(largest, 'sample')} at once{beyond}{quickest}"


def _rate(one: StepCost) -> float:
    return one.batch / max(one.seconds, 1e-9)


def budget(*, benchmark: bool = False, on_event: OnEvent | None = None, **options: Any) -> BudgetResult:
    """What batch fits here, and how fast it is: measured in a process of its own, without data. Left out, `cut` is none.

    Without `batch_size`, the largest batch is looked for; with one, how to run it under the limit.

    Args:
        benchmark: Time every batch size on the way, and name the fastest.
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The largest batch that fits, by way of running, and what its memory is made of.

    Example:
        >>> unchoke.budget(encoder="test_resnet", batch_size=2, device="cpu").fits["train"] >= 2
        True
    """
    from unchoke.machine.backend import torch_device
    from unchoke.machine.detect import detect_machine
    from unchoke.machine.policy import choose_policy

    given = {name: value for name, value in options.items() if value is not None}
    settings = validate({"cut": _DEFAULT_CUT, **given})
    tell, choices = on_event or default_listener(), list[Choice]()

    def chose(choice: Choice) -> None:
        choices.append(choice)
        tell(Chosen(choice))

    if "cut" not in given:
        chose(Choice("cut", _DEFAULT_CUT, "everything trains: that takes the most memory"))
    policy = choose_policy(detect_machine(), device=settings.device)
    chose(policy.choice("device"))
    trial, about = _trial(settings, policy, benchmark=benchmark)
    device = torch_device(policy)
    limit = choose_limit(device, settings.memory_bytes)
    chose(limit.choice)
    plan, fits, measured = _measure(settings, trial, limit, tell)
    others = count_operations(settings, device, limit.num_bytes)
    return BudgetResult({**about, "limit_reason": limit.choice.reason}, plan, fits, measured, benchmark, choices, others)


def _measure(
    settings: Settings, trial: MemoryTrial, limit: MemoryLimit, tell: OnEvent
) -> tuple[MemoryPlan, dict[str, int], dict[str, list[StepCost]]]:
    from unchoke.training.network.plan_memory import measure_sizes, plan_near

    room, can_checkpoint, asked = MemoryRoom(limit.num_bytes), trial.job.can_checkpoint(), settings.grad_ckpt
    if settings.batch_size is not None:
        plan = plan_near(trial, limit, sub_batch=None, grad_ckpt=asked, can_checkpoint=can_checkpoint, on_event=tell)
        way = "train_ckpt" if plan.grad_ckpt else "train"
        return plan, {way: plan.sub_batch}, {way: list(plan.measured)}
    unwanted = {"train"} if asked else {"train_ckpt"} if asked is False or not can_checkpoint else set[str]()
    ways: list[Way] = [way for way in ("train", "train_ckpt", "evaluation") if way not in unwanted]
    sizes = tuple(2**power for power in range(_MOST.bit_length()))
    found = {way: measure_sizes(replace(trial, way=way, sizes=sizes), limit, tell) for way in ways}
    measured = {str(way): [one for one in done.costs if one.fits(room)] for way, done in found.items()}
    fits = {way: _largest(costs, room) for way, costs in measured.items()}
    way = next((way for way in ("train", "train_ckpt") if fits.get(way)), "")
    if not way:
        costs = [one for done in found.values() for one in done.costs]
        raise does_not_fit("", costs, None, room, found[ways[0]].fact, ckpt="train_ckpt" in found)
    batch = fits[way]
    plan = make_plan(
        _at(measured[way], batch), room, batch=batch, eval_batch=fits["evaluation"], grad_ckpt=way == "train_ckpt",
        reasons={"batch": "the largest that fits at once", "eval_batch": "the largest that fits at once"},
    )  # fmt: skip
    return plan, fits, measured


def _at(costs: Sequence[StepCost], batch: int) -> StepCost:
    """What `batch` takes, by the line through the last two sizes; sizes double, and the next one did not fit."""
    best = costs[-1]
    if batch <= best.batch or len(costs) < 2:
        return best
    each = (best.peak_bytes - costs[-2].peak_bytes) / (best.batch - costs[-2].batch)
    return replace(best, batch=batch, peak_bytes=int(best.peak_bytes + each * (batch - best.batch)))


def _largest(costs: Sequence[StepCost], room: MemoryRoom) -> int:
    """The largest size that fits: one that was measured, or one before the next that would have been."""
    best = largest_fitting(costs, room)
    if best is None:
        return 0
    beyond = range(best.batch, min(2 * best.batch, _MOST + 1)) if len(costs) > 1 else range(best.batch, best.batch + 1)
    return max(size for size in beyond if _at(costs, size).fits(room))


def _trial(settings: Settings, policy: Policy, *, benchmark: bool) -> tuple[MemoryTrial, dict[str, Any]]:
    """What is tried, and how to call it. The network is built here once, so that what is wrong with it is said at once."""
    import numpy as np
    import torch

    from unchoke.features.cut import cut_network
    from unchoke.features.encoders import bare_encoder
    from unchoke.machine.policy import LONG
    from unchoke.pixels.tile_grid import plan_tiles
    from unchoke.training.data import Problem
    from unchoke.training.network.loop_config import LoopConfig
    from unchoke.training.network.memory_trial import MemoryTrial
    from unchoke.training.network.photo_job import NetworkSpec, PhotoJob
    from unchoke.training.network.photo_trainer import noise_source

    tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
    encoder = bare_encoder(settings.encoder, input_px=settings.input_px)
    cut = cut_network(encoder, settings.cut, verify=False)
    precision, size = settings.train_precision, settings.batch_size or 1
    formats = {True: "channels_last", False: "contiguous", None: policy.memory_format}
    loop = LoopConfig(  # as a run would have it; averaging is on, as it is in all but the shortest runs
        epochs=1,
        batch_size=size,
        sub_batch=size,
        eval_batch=size,
        lr=1e-3,
        body_lr=1e-4,
        ema_decay=0.99,
        dtype=policy.train_dtype if precision is None else LONG[precision],
        memory_format=formats[settings.channels_last],
        threads=torch.get_num_threads(),
    )
    network = NetworkSpec(settings.encoder, settings.cut, input_px=settings.input_px, tiles=tiles, fusion=settings.fusion)
    names = tuple(f"class {number}" for number in range(_CLASSES))
    splits = {"train": np.arange(_CLASSES)}
    job = PhotoJob(
        network=network,
        source=noise_source(settings, encoder, cut),
        problem=Problem("classification", names, np.arange(_CLASSES), splits, list(names)),
        loop=loop,
        metric="loss",
        device=policy.device,
    )
    trial = MemoryTrial(
        job,
        steps=_TIMED_STEPS if benchmark else MemoryTrial.steps,
        longest_s=_LONGEST_STEP_S,
    )
    about = {
        "encoder": settings.encoder,
        "cut": settings.cut,
        "num_trained": cut.num_trained,
        "num_blocks": cut.num_blocks,
        "input_px": encoder.spec.preprocess.size_px,
        "tiles": tiles.text,
        "device": policy.device,
        "precision": loop.dtype,
    }
    return trial, about
