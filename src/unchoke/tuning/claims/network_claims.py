"""Claims about running a network: all tiles in one pass, the channels-last layout, larger evaluation batches, an accelerator.

Inputs lie in memory, so that only the network is timed. Both ways are compared on the same weights before the clock starts. An
accelerator is compared with the processor, and pinned memory with ordinary memory for copies to it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unchoke.tuning.claims.claim import ClaimMeasurement, DoesNotApply, percent, possible_gain, spell_s
from unchoke.tuning.claims.claim_bench import Bench
from unchoke.tuning.claims.plain_training import (
    NETWORK,
    NUM_CLASSES,
    PlainTrainer,
    alike,
    as_exact,
    build_network,
    class_loss,
    likeness_text,
    noise_batch,
    numbers,
    plain_reader,
    to_array,
)
from unchoke.tuning.compare import Numbers

if TYPE_CHECKING:
    import torch

_PICTURES = 4
_LARGER = 2
"""Evaluation batches are commonly twice those of training, and reported to be better at twice that again."""
_REPEATS = 3
_STEPS = 4
_COPIES = 8


def measure_batched_tiles(bench: Bench) -> ClaimMeasurement:
    """A training step of a tiled transformer: one pass for each tile of the pictures, or one for all."""
    tiled = build_tiled(bench)
    likeness = alike(tiled.numbers(tiled.one_by_one), tiled.numbers(tiled.at_once), bench.device)
    compared = bench.compare(lambda: tiled.step(tiled.one_by_one), lambda: tiled.step(tiled.at_once))
    few, many = _PICTURES, _PICTURES * len(tiled.tiles)
    one_s, all_s = (_median_seconds(bench, body) for body in (tiled.first_tile, tiled.at_once))
    slower = all_s / one_s
    why = (
        f"a pass over {few} tiles takes {spell_s(one_s)} here and one over {many} takes {spell_s(all_s)}: {many // few}× the "
        f"work in {slower:.1f}× the time, so that one pass for all can be {many / few / slower:.2f}× as fast"
    )
    return ClaimMeasurement.of(
        compared,
        equal=likeness.equal,
        equal_figure=likeness_text(likeness),
        why=why,
        pass_s={str(few): one_s, str(many): all_s},
        device=str(bench.device),
    )


@dataclass(eq=False)
class _TiledTransformer:
    """A small transformer over the tiles of a few pictures, and a linear head on the mean of their features."""

    network: torch.nn.ModuleDict
    tiles: list[torch.Tensor]
    optimizer: torch.optim.Optimizer

    def one_by_one(self) -> torch.Tensor:
        """The pictures' outputs by a pass for each tile."""
        import torch

        features = [self.network["backbone"](tile) for tile in self.tiles]  # unchoke: ignore[no-inference-mode] `step` trains
        return self._head(torch.stack(features).mean(dim=0))

    def at_once(self) -> torch.Tensor:
        """The same by one pass for all of them."""
        import torch

        features = self.network["backbone"](torch.cat(self.tiles))
        return self._head(features.view(len(self.tiles), _PICTURES, -1).mean(dim=0))

    def _head(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.network["head"](features)
        return outputs

    def first_tile(self) -> None:
        self.network["backbone"](self.tiles[0])

    def numbers(self, way: Callable[[], torch.Tensor]) -> Numbers:
        return numbers(self.network, way())

    def step(self, way: Callable[[], torch.Tensor]) -> None:
        self.optimizer.zero_grad()
        class_loss(way()).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def build_tiled(bench: Bench) -> _TiledTransformer:
    """Two streams of 2×2 tiles for each picture; on an accelerator the network is larger, as people's are."""
    import torch

    from unchoke.pixels.tile_grid import TilePlan, tile_windows

    plan, side = TilePlan(2, 2, 2), bench.sizes.input_px
    name = "vit_small_patch16_224" if bench.facts.accelerators else "vit_tiny_patch16_224"
    backbone: Any = build_network(name, bench.device, num_classes=0, img_size=side)
    network = torch.nn.ModuleDict({"backbone": backbone, "head": torch.nn.Linear(backbone.num_features, NUM_CLASSES)})
    height, width = plan.rows * side, plan.streams * plan.cols * side
    pictures = noise_batch(_PICTURES, height, width).to(bench.device)
    windows = [np.s_[..., box.top : box.top + side, box.left : box.left + side] for box in tile_windows(plan, height, width)]
    tiles = [pictures[window].contiguous() for window in windows]
    return _TiledTransformer(network.to(bench.device), tiles, torch.optim.AdamW(network.parameters(), lr=1e-5))


def measure_channels_last(bench: Bench) -> ClaimMeasurement:
    """A training step of a convolutional network in the usual layout and with channels innermost."""
    plain, other = ways = PlainTrainer(bench.device), PlainTrainer(bench.device, channels_last=True)
    batch = noise_batch(bench.batch, bench.sizes.input_px, bench.sizes.input_px)
    equal, equal_figure = as_exact(plain, other, batch)
    compared = bench.compare(lambda: plain.step(batch), lambda: other.step(batch))
    steps = (compared.plain_s, compared.trick_s)
    convolving = tuple(_convolution_seconds(bench, one, batch) for one in ways)
    rest = tuple(max(1e-9, step_s - spent_s) for step_s, spent_s in zip(steps, convolving, strict=True))
    why = (
        f"convolutions take {percent(min(1.0, convolving[0] / steps[0]))} of a step here; with channels innermost they run "
        f"{convolving[0] / convolving[1]:.2f}× as fast, and the rest of the step {rest[0] / rest[1]:.2f}×"
    )
    return ClaimMeasurement.of(
        compared,
        equal=equal,
        equal_figure=equal_figure,
        why=why,
        step_s=steps,
        convolution_s=convolving,
        network=NETWORK,
        batch=bench.batch,
        device=str(bench.device),
    )


def _convolution_seconds(bench: Bench, trainer: PlainTrainer, batch: torch.Tensor) -> float:
    """What the convolutions of a step take, forward and backward, each run alone on what it is given in the network."""
    import torch

    seen: list[tuple[torch.nn.Module, torch.Tensor, torch.Tensor]] = []

    def note(module: torch.nn.Module, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        seen.append((module, given[0].detach().requires_grad_(), torch.ones_like(output)))

    layers = [module for module in trainer.network.modules() if isinstance(module, torch.nn.Conv2d)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    trainer.network(trainer.inputs(batch))
    for hook in hooks:
        hook.remove()

    def convolve() -> None:
        for layer, given, grad in seen:
            torch.autograd.grad(layer(given), [given, *layer.parameters()], grad)

    return _median_seconds(bench, convolve)


def measure_evaluation_batch(bench: Bench) -> ClaimMeasurement:
    """An evaluation pass with batches twice those of training, and twice that again."""
    import torch

    network = build_network(NETWORK, bench.device).eval()
    small, large = _LARGER * bench.batch, 2 * _LARGER * bench.batch
    pictures = noise_batch(large, bench.sizes.input_px, bench.sizes.input_px)

    def evaluate(batch: int) -> torch.Tensor:
        with torch.no_grad():
            return torch.cat([network(part.to(bench.device)) for part in torch.split(pictures, batch)])

    likeness = alike(Numbers(to_array(evaluate(small))), Numbers(to_array(evaluate(large))), bench.device)
    compared = bench.compare(lambda: evaluate(small), lambda: evaluate(large))
    each = {batch: _Pass.of(bench, partial(evaluate, batch), len(pictures)) for batch in (small, large)}
    figures = ", ".join(f"{spell_s(one.picture_s)}{one.faults_text} in batches of {batch}" for batch, one in each.items())
    return ClaimMeasurement.of(
        compared,
        equal=likeness.equal,
        equal_figure=likeness_text(likeness),
        why=f"a picture takes {figures}: {_how_busy(each[small].picture_s / each[large].picture_s)}",
        picture_s={str(batch): one.picture_s for batch, one in each.items()},
        picture_page_faults={str(batch): one.picture_faults for batch, one in each.items()},
        network=NETWORK,
        device=str(bench.device),
    )


def _how_busy(gain: float) -> str:
    if gain > 1.05:
        return "the smaller batches leave the device idle in between"
    if gain < 0.95:
        return "the larger batches cost more in memory than they save in calls"
    return "the smaller batches keep it busy already"


class _Pass:
    """What one picture takes in a pass: seconds, and pages that the system had to map for it (None where nobody counts)."""

    def __init__(self, picture_s: float, picture_faults: float | None) -> None:
        self.picture_s, self.picture_faults = picture_s, picture_faults

    @classmethod
    def of(cls, bench: Bench, body: Callable[[], object], num_pictures: int) -> _Pass:
        before = None if bench.facts.accelerators else _page_faults()
        picture_s = _median_seconds(bench, body) / num_pictures
        after = _page_faults()
        faults = None if before is None or after is None else (after - before) / (_REPEATS * num_pictures)
        return cls(picture_s, faults)

    @property
    def faults_text(self) -> str:
        return "" if self.picture_faults is None else f" and {self.picture_faults:,.0f} page faults"


def _page_faults() -> int | None:
    """How many pages were mapped for this process so far."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _median_seconds(bench: Bench, body: Callable[[], object]) -> float:
    return statistics.median(bench.seconds(body) for _ in range(_REPEATS))


def measure_pinned_memory(bench: Bench) -> ClaimMeasurement:
    """Copying a batch to the device from ordinary memory against pinned memory."""
    from unchoke.machine.backend import to_device

    batch = noise_batch(bench.batch, bench.sizes.input_px, bench.sizes.input_px)
    try:
        pinned = batch.pin_memory()
    except RuntimeError as error:
        raise DoesNotApply(f"torch cannot pin memory here: {error}") from error

    def copy(pin: bool) -> None:
        for _ in range(_COPIES):
            to_device(pinned if pin else batch, bench.device, non_blocking=pin)

    copies = [to_array(to_device(one, bench.device, non_blocking=True)) for one in (batch, pinned)]
    equal = bool((copies[0] == copies[1]).all())
    compared = bench.compare(lambda: copy(False), lambda: copy(True))
    trainer = PlainTrainer(bench.device)
    trainer.step(batch)
    plain_s, pinned_s = (bench.seconds(lambda pin=pin: copy(pin)) / _COPIES for pin in (False, True))  # type: ignore[misc]
    step_s, pin_s = bench.seconds(lambda: trainer.step(batch)), bench.seconds(batch.pin_memory)
    share, size_bytes = plain_s / step_s, batch.numel() * batch.element_size()
    why = (
        f"copies run at {size_bytes / plain_s / 1e9:.1f} GB/s from ordinary memory and at {size_bytes / pinned_s / 1e9:.1f} GB/s "
        f"from pinned, and pinning a batch takes {spell_s(pin_s)}; the copy is {percent(share)} of a training step, so that "
        f"{possible_gain(share, plain_s / pinned_s):.2f}× of a step can come of it"
    )
    return ClaimMeasurement.of(
        compared,
        equal=equal,
        equal_figure="the same numbers" if equal else "OTHER numbers",
        why=why,
        batch_bytes=size_bytes,
        copy_s={"plain": plain_s, "pinned": pinned_s},
        pin_s=pin_s,
        step_s=step_s,
        device=str(bench.device),
    )


def measure_accelerator(bench: Bench) -> ClaimMeasurement:
    """Training steps on the processor against the same on the accelerator."""
    import torch

    batch = noise_batch(bench.batch, bench.sizes.input_px, bench.sizes.input_px)
    processor, card = PlainTrainer(torch.device("cpu")), PlainTrainer(bench.device)
    equal, equal_figure = as_exact(processor, card, batch)

    def epoch(trainer: PlainTrainer) -> None:
        for _ in range(_STEPS):
            trainer.step(batch)

    compared = bench.compare(lambda: epoch(processor), lambda: epoch(card))
    _, read = plain_reader()
    decode_s = bench.seconds(lambda: [read(path) for path in bench.photos]) / len(bench.photos)
    card_s = bench.seconds(lambda: epoch(card)) / (_STEPS * bench.batch)
    width, height = bench.sizes.photo_px
    why = (
        f"a picture takes {spell_s(card_s)} on {bench.facts.accelerators[0].name} and {spell_s(card_s * compared.ratio)} on "
        f"{bench.facts.cores} cores; decoding one of {width}×{height} takes {spell_s(decode_s)} in one process, so that "
        f"{decode_s / card_s:.0f} of them would keep the device busy"
    )
    return ClaimMeasurement.of(
        compared,
        equal=equal,
        equal_figure=equal_figure,
        why=why,
        picture_s={"accelerator": card_s, "decode": decode_s},
        network=NETWORK,
        batch=bench.batch,
        device=str(bench.device),
    )
