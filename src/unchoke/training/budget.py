"""`unchoke budget`: what batch fits here, and how fast it is. Needs no data and changes nothing.

In: a network, where it is cut, and perhaps a limit. Out: a `BudgetResult`: the largest batch that fits in training (with and
without gradient checkpointing) and in evaluation, what its memory is made of, and with `benchmark` the speed of every size tried.
Each size runs for real, with random weights and noise for pictures, in a process of its own; see `memory_trial.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from unchoke.core.choices import Choice
from unchoke.core.events import Chosen, OnEvent
from unchoke.core.settings import Settings, validate
from unchoke.machine.memory.budget_text import render_budget
from unchoke.machine.memory.memory_plan import MemoryPlan, MemoryRequest, MemoryRoom, Probes, StepMode, choose_plan
from unchoke.machine.memory.probe import ProbeResult
from unchoke.machine.memory.search import Way, find_largest, plan_memory
from unchoke.runs.session import default_listener
from unchoke.training.count_operations import OperationBudget, count_operations

if TYPE_CHECKING:
    from unchoke.machine.memory.memory_limit import MemoryLimit
    from unchoke.machine.policy import Policy
    from unchoke.training.network.loop_config import LoopConfig
    from unchoke.training.network.memory_trial import MemoryTrial
    from unchoke.training.network.prober import Prober

_DEFAULT_CUT = "none"
_MOST = 1024
_MOST_TIMED = 256
_LONGEST_STEP_S = 4.0
_TIMED_STEPS = 6
_CLASSES = 10
_WAYS: tuple[Way, ...] = ("train", "train_ckpt", "evaluation")


@dataclass(frozen=True)
class BudgetResult:
    """`fits` is the largest batch that fits at once, by way of running; 0 where not even one sample does."""

    about: dict[str, Any]
    """What was asked: network, cut, device and limit."""
    plan: MemoryPlan
    """How a batch would be run, and what its memory is made of."""
    fits: dict[str, int]
    """The largest batch that fits at once, by way of running; 0 where not even one sample does."""
    benchmark: bool = False
    """Whether every size was timed as well."""
    choices: list[Choice] = field(default_factory=list)
    """What was chosen, with reasons."""
    operations: list[OperationBudget] = field(default_factory=list)
    """What extraction, heads and masks would take: counted, not measured."""

    @property
    def speeds(self) -> dict[str, list[dict[str, Any]]]:
        """Images per second of every size that was tried, by way of running."""
        return {way: [_speed(one) for one in found if one.fits] for way, found in self._probes.items() if found}

    @property
    def fastest(self) -> dict[str, int]:
        """The batch that got most images through in a second, by way of running."""
        return {way: max(found, key=lambda one: one["images_per_s"])["batch"] for way, found in self.speeds.items() if found}

    @property
    def _probes(self) -> dict[str, tuple[ProbeResult, ...]]:
        return {way: getattr(self.plan.probes, way) for way in _WAYS}

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
        others = [(one.operation, one.text) for one in self.operations]
        return render_budget(self.about, self.plan, self.fits, fastest=self.fastest if self.benchmark else None, others=others)


def budget(*, benchmark: bool = False, on_event: OnEvent | None = None, **options: Any) -> BudgetResult:
    """What batch fits here, and how fast it is: measured in processes of their own, without data. Left out, `cut` is none.

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
    given = {name: value for name, value in options.items() if value is not None}
    settings = validate({"cut": _DEFAULT_CUT, **given})
    return _Inquiry(settings, on_event or default_listener(), benchmark=benchmark).answer(said_cut="cut" in given)


class _Inquiry:
    """One question, from settings to the answer."""

    def __init__(self, settings: Settings, on_event: OnEvent, *, benchmark: bool) -> None:
        self._settings, self._on_event, self._benchmark = settings, on_event, benchmark
        self._choices: list[Choice] = []

    def answer(self, *, said_cut: bool) -> BudgetResult:
        from unchoke.machine.backend import torch_device
        from unchoke.machine.detect import detect_machine
        from unchoke.machine.memory.memory_limit import limit_elsewhere
        from unchoke.machine.policy import choose_policy
        from unchoke.training.network.prober import Prober

        if not said_cut:
            self._chose(Choice("cut", _DEFAULT_CUT, "everything trains: that takes the most memory"))
        policy = choose_policy(detect_machine(), overrides={"device": self._settings.device})
        self._chose(policy.choice("device"))
        trial, about = self._trial(policy)
        limit = limit_elsewhere(torch_device(policy), self._settings.memory_bytes)
        self._chose(limit.choice)
        prober = Prober.of_training(trial, limit=limit, on_event=self._on_event, usual=self._usual())
        plan, fits = self._measure(prober, trial, limit)
        prober.finish()
        others = count_operations(self._settings, torch_device(policy), limit.num_bytes)
        return BudgetResult({**about, "limit_reason": limit.choice.reason}, plan, fits, self._benchmark, self._choices, others)

    def _chose(self, choice: Choice) -> None:
        self._choices.append(choice)
        self._on_event(Chosen(choice))

    def _usual(self) -> int:
        return 3 * (8 if self._benchmark else 3)

    def _trial(self, policy: Policy) -> tuple[MemoryTrial, dict[str, Any]]:
        """What is tried, and how to call it. The network is built here once, so that what is wrong with it is said at once."""
        from unchoke.features.cut import cut_network
        from unchoke.features.encoders import bare_encoder
        from unchoke.pixels.tile_grid import plan_tiles
        from unchoke.training.network.memory_trial import MemoryTrial
        from unchoke.training.network.photo_blueprint import NetworkSpec, PhotoBlueprint
        from unchoke.training.network.photo_subject import noise_source

        settings = self._settings
        tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
        encoder = bare_encoder(settings.encoder, input_px=settings.input_px)
        cut = cut_network(encoder, settings.cut, verify=False)
        loop = self._loop(policy)
        network = NetworkSpec(settings.encoder, settings.cut, input_px=settings.input_px, tiles=tiles, fusion=settings.fusion)
        trial = MemoryTrial(
            PhotoBlueprint(network, noise_source(settings, encoder, cut)),
            loop=loop,
            device=policy.device,
            names=tuple(f"class {number}" for number in range(_CLASSES)),
            steps=_TIMED_STEPS if self._benchmark else MemoryTrial.steps,
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

    def _loop(self, policy: Policy) -> LoopConfig:
        """The loop as a run would have it; averaging is on, as it is in all but the shortest runs."""
        import torch

        from unchoke.machine.policy import LONG
        from unchoke.training.network.loop_config import LoopConfig

        settings = self._settings
        precision, channels_last = settings.train_precision, settings.channels_last
        formats = {True: "channels_last", False: "contiguous", None: policy.memory_format}
        size = settings.batch_size or 1
        return LoopConfig(
            epochs=1,
            batch_size=size,
            sub_batch=size,
            eval_batch=size,
            lr=1e-3,
            body_lr=1e-4,
            ema_decay=0.99,
            dtype=policy.train_dtype if precision is None else LONG[precision],
            memory_format=formats[channels_last],
            threads=torch.get_num_threads(),
        )

    def _measure(self, prober: Prober, trial: MemoryTrial, limit: MemoryLimit) -> tuple[MemoryPlan, dict[str, int]]:
        settings, room = self._settings, MemoryRoom(limit.num_bytes)
        can = trial.blueprint.can_checkpoint()
        wanted = MemoryRequest(settings.batch_size, grad_ckpt=settings.grad_ckpt)
        if settings.batch_size is not None:
            plan = plan_memory(prober, room, wanted, num_samples=settings.batch_size, can_checkpoint=can)
            return plan, {way: _largest(getattr(plan.probes, way), room) for way in _WAYS if getattr(plan.probes, way)}
        probes = Probes(**{way: tuple(self._try(prober, way, room)) for way in self._ways(can)})
        fits: dict[str, int] = {way: _largest(getattr(probes, way), room) for way in self._ways(can)}
        batch = fits.get("train") or fits.get("train_ckpt") or 1
        plan = choose_plan(probes, room, replace(wanted, batch=batch), num_samples=batch)
        return replace(plan, reasons={**plan.reasons, "batch": "the largest that fits at once"}), fits

    def _ways(self, can_checkpoint: bool) -> list[Way]:
        asked = self._settings.grad_ckpt
        unwanted = {"train"} if asked else {"train_ckpt"} if asked is False or not can_checkpoint else set()
        return [way for way in _WAYS if way not in unwanted]

    def _try(self, prober: Prober, way: Way, room: MemoryRoom) -> list[ProbeResult]:
        """Sizes up to the largest that fits. For a benchmark every power of two on the way, as long as steps are not too slow."""
        found = find_largest(prober, way, room, at_most=_MOST, longest_s=_LONGEST_STEP_S)
        if not self._benchmark or not (mode := StepMode.of(found)):
            return found
        largest = min(mode.largest(room.step_bytes, at_most=_MOST_TIMED), mode.time.largest(_LONGEST_STEP_S, at_most=_MOST_TIMED))
        ladder = prober(way, [2**power for power in range(largest.bit_length())])
        return sorted({one.batch: one for one in [*found, *ladder]}.values(), key=lambda one: one.batch)


def _largest(probes: Sequence[ProbeResult], room: MemoryRoom) -> int:
    mode = StepMode.of(probes)
    return mode.largest(room.step_bytes, at_most=_MOST) if mode else 0


def _speed(one: ProbeResult) -> dict[str, Any]:
    assert one.measured is not None
    seconds = max(one.measured.seconds_per_step, 1e-9)
    return {"batch": one.batch, "images_per_s": one.batch / seconds, "peak_bytes": one.measured.peak_bytes}
