"""Training for classes and values of photos: its key, how the loop is set, and what is kept of the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unchoke.core.errors import UsageError
from unchoke.core.fingerprint import digest
from unchoke.core.settings import OPTIONS, Settings, settings_where
from unchoke.core.units import format_count
from unchoke.data.targets import TargetPlan, plan_targets
from unchoke.features.cut import NONE, Cut, count_blocks, pooled_dim
from unchoke.features.encoders import Encoder
from unchoke.machine.backend import keep_freed_memory
from unchoke.pixels.canvas import plan_canvas
from unchoke.pixels.tile_grid import plan_tiles
from unchoke.runs.session import Session
from unchoke.training.data import LearningTask
from unchoke.training.network.loop_choices import TrainedPart, choose_loop
from unchoke.training.network.loop_config import LoopResult, TrainingPlan
from unchoke.training.network.network_trainer import NetworkTrainer
from unchoke.training.network.photo_job import LinearStart, NetworkSpec, PhotoJob, SourceSpec, StoredActivations
from unchoke.training.network.prepare_pixels import noise_pixels
from unchoke.training.network.tiled_network import NetworkConfig
from unchoke.training.network.trained_network import TrainedNetwork
from unchoke.training.scoring.selection import choose_metric

_PICTURE = (4, 3)


class PhotoTrainer(NetworkTrainer):
    """One network, its suffix, fusion and head trained together."""

    def __init__(
        self,
        session: Session,
        learnable: LearningTask,
        encoder: Encoder,
        source: SourceSpec,
        start: LinearStart | None = None,
    ) -> None:
        super().__init__(session)
        settings = session.settings
        self._start = start
        refuse_head_options(settings)
        self._learnable, self._source = learnable, source
        self._dim, self._num_blocks = pooled_dim(encoder, settings.cut), count_blocks(encoder.module)
        self._part = TrainedPart.of(encoder, settings.cut)
        self._spec = network_spec(settings, encoder)
        self._targets = targets_of(settings, learnable)
        self.problem = learnable.problem
        self.weights = self._targets.weights if self._targets else None
        wanted = {name: value for name, value in settings.given().items() if OPTIONS[name].tells_runs_apart}
        self.key = digest(["network", wanted, encoder.spec.weights_sha256])
        self.detail = f"{self._spec.encoder}, --cut {settings.cut}, {format_count(settings.epochs, 'epoch')}"

    def settle(self, kept: TrainingPlan | None) -> tuple[TrainingPlan, str]:
        metric = choose_metric(self.problem, self._targets)
        self._session.chose(metric)
        plan = kept or TrainingPlan(choose_loop(self._session, self.problem, self._part))
        self._session.chose(keep_freed_memory(plan.loop.keep_freed))
        return plan, str(metric.value)

    def job(self, plan: TrainingPlan, **how: Any) -> PhotoJob:
        return PhotoJob(
            network=self._spec,
            source=self._source,
            targets=self._targets,
            inputs=self._learnable.inputs,
            start=self._start,
            **how,
        )

    def trained(self, plan: TrainingPlan, done: LoopResult) -> TrainedNetwork:
        targets, input_names = self._targets, self._learnable.input_names
        config = NetworkConfig(
            tiles=self._spec.tiles,
            dim=self._dim,
            fusion=self._spec.fusion,
            num_inputs=len(input_names),
            kind=self.problem.kind,
            num_outputs=len(targets.learned) if targets else self.problem.num_outputs,
            positive=targets.positive if targets else False,
            num_derived=len(targets.sums) if targets else 0,
        )
        return TrainedNetwork(
            spec=replace(self._spec, weights=None),
            config=config,
            state=done.state,
            kind=self.problem.kind,
            names=self.problem.names,
            targets=targets,
            input_names=input_names,
            best_epoch=done.best_epoch,
            val=done.val,
        )

    def config(self, plan: TrainingPlan) -> dict[str, Any]:
        return {"kind": "network", "cut": self._spec.cut, "fusion": self._spec.fusion}

    def about(self, plan: TrainingPlan) -> dict[str, Any]:
        return {
            "cut": self._spec.cut,
            "num_blocks": self._num_blocks,
            "tiles": self._spec.tiles.text,
            "fusion": self._spec.fusion,
            "targets": self._targets.to_dict() if self._targets else None,
        }


def network_spec(settings: Settings, encoder: Encoder) -> NetworkSpec:
    """The network that trains, as a plain value."""
    return NetworkSpec(
        encoder=settings.encoder,
        cut=settings.cut,
        weights=settings.weights,
        weights_sha256=encoder.spec.weights_sha256,
        input_px=settings.input_px,
        tiles=plan_tiles(streams=settings.streams, tiles=settings.tiles),
        fusion=settings.fusion,
    )


def noise_source(settings: Settings, encoder: Encoder, cut: Cut) -> SourceSpec:
    """Noise of the shape of what a training with these settings reads: of usual pictures, where those are."""
    tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
    if settings.cut == NONE:
        return noise_pixels(plan_canvas(tiles, encoder.spec.preprocess, [_PICTURE]), settings.augment or "light")
    return StoredActivations(None, (tiles.num_tiles, *cut.shape))


def targets_of(settings: Settings, learnable: LearningTask) -> TargetPlan | None:
    """What was declared about the targets (`training/data.py` has checked it); None for classes."""
    problem = learnable.problem
    if problem.kind != "regression":
        return None
    return plan_targets(problem.names, sums=settings.sums, weights=settings.target_weights, positive=settings.positive)


def refuse_head_options(settings: Settings) -> None:
    """Options that only concern heads on pooled features are refused here, not ignored."""
    given = [f"--{name}" for name in settings_where(lambda option: option.heads_only) if getattr(settings, name)]
    if given:
        raise UsageError(
            f"{' and '.join(given)} cannot be combined with training through a network",
            code="options-conflict",
            why="its own head is trained with it: kinds of heads and sweeps are for --cut end of whole photos, nothing declared",
            try_=f"leave it out, or train heads alone: --cut end {' '.join(given)}",
        )
