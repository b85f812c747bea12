"""Training for masks of patches: its key, how the loop is set, and what is kept of the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError
from unchoke.core.fingerprint import digest, hash_int
from unchoke.core.settings import settings_where
from unchoke.core.units import format_count
from unchoke.features.extraction import Extraction
from unchoke.machine.backend import keep_freed_memory
from unchoke.machine.policy import UNMEASURED
from unchoke.masks.mask_job import MaskJob
from unchoke.masks.mask_objective import MEAN_IOU, count_pixels, mean_iou, weigh_classes
from unchoke.masks.patch_arrays import PatchArrays
from unchoke.masks.patches import NUM_TURNS
from unchoke.masks.pixel_trees import PixelScorer
from unchoke.masks.prepare_patches import PatchMaterial
from unchoke.masks.segmenter import FPN_STRIDES, PYRAMID, WHOLE, Decoder, SegmenterConfig
from unchoke.masks.trained_segmenter import TrainedSegmenter
from unchoke.runs.session import Session
from unchoke.training.data import Problem
from unchoke.training.network.loop_choices import TrainedPart, choose_loop
from unchoke.training.network.loop_config import LoopConfig, LoopResult, TrainingPlan
from unchoke.training.network.network_trainer import NetworkTrainer
from unchoke.training.scoring.selection import IMBALANCE_FOR_WEIGHTS

DETAIL = "bands at full size, joined last; version 1"
"""What decoders see beside the maps, for digests."""
_DEFAULT_DICE = 0.5
_SPREAD_PATCHES = 256
_REFINING_LR = Choice(
    "lr",
    3e-4,
    "slower than usual: the decoder begins with the answer of the trees, and faster it forgets it",
    {"claim": "Masks of scenes, docs/claims-history.md"},
)
_TELLS_RUNS_APART = settings_where(lambda option: option.tells_runs_apart and option.group != "Data")


@dataclass(frozen=True)
class MaskPlan(TrainingPlan):
    """The loop, and what only masks have."""

    decoder: Decoder
    dice: float
    class_weights: tuple[float, ...] | None
    num_turns: int
    spread_px: int = 5

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "loop": self.loop.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        loop, weights = LoopConfig(**values["loop"]), values["class_weights"]
        return cls(**{**values, "loop": loop, "class_weights": None if weights is None else tuple(weights)})


class MaskTrainer(NetworkTrainer):
    """One segmenter, trained on patches."""

    plan_kind = MaskPlan

    def __init__(
        self,
        session: Session,
        material: PatchMaterial,
        features: Extraction | None,
        scorer: PixelScorer | None = None,
        *,
        bands: bool = True,
    ) -> None:
        """`scorer` whose scores the material keeps, and `bands`, are seen at full size."""
        super().__init__(session)
        self._material, self._features, self._scorer, self._bands = material, features, scorer, bands
        self._cut = PYRAMID if features is not None else WHOLE
        self.problem = problem_of(material)
        wanted = {name: value for name, value in session.settings.given().items() if name in _TELLS_RUNS_APART}
        seen = features.fingerprint if features is not None else "pixels"
        detail = [DETAIL, bands, scorer is not None]
        self.key = digest(["masks", material.digest, seen, {**wanted, "cut": self._cut}, material.spec.to_dict(), detail])
        part = "the whole network" if self._cut == WHOLE else "a decoder on cached pyramids"
        self.detail = f"{part}, {format_count(len(self.problem.positions('train')), 'patch', 'patches')}"

    def settle(self, kept: MaskPlan | None) -> tuple[MaskPlan, str]:
        self._session.chose(keep_freed_memory())
        plan = kept or self._choose()
        metric = MEAN_IOU if len(self.problem.positions("val")) else "none"
        reason = "the mean over the classes on the val split" if metric == MEAN_IOU else "no val split: the last epoch is kept"
        self._session.chose(Choice("selection_metric", metric, reason))
        return plan, metric

    def _choose(self) -> MaskPlan:
        session, settings, whole = self._session, self._session.settings, self._cut == WHOLE
        part = TrainedPart(anything=whole, batch_norm=whole, convolutions=True)
        loop = choose_loop(session, self.problem, part, **({} if self._scorer is None else {"usual_lr": _REFINING_LR}))
        decoder = settings.decoder or self._chose(choose_decoder(self._material.spec.strides))
        dice = settings.dice
        if dice is None:
            reason = "half Dice, half cross-entropy: small classes count, and training is steady"
            dice = self._chose(Choice("dice", _DEFAULT_DICE, reason, UNMEASURED))
        return MaskPlan(loop, decoder, dice, self._class_weights(), self._num_turns(), self._spread_px())

    def _chose(self, choice: Choice) -> Any:
        self._session.chose(choice)
        return choice.value

    def _class_weights(self) -> tuple[float, ...] | None:
        """By how many pixels each class has among the training patches."""
        names = self._material.class_names
        counts = count_pixels(self._material.arrays, self.problem.positions("train"), len(names))
        if not counts.any():
            raise DataError(
                "no pixel of the training patches has a label",
                code="no-labelled-pixels",
                why="a decoder learns from labelled pixels",
                try_="check --label, --mask or --polygons, and --ignore",
            )
        how = self._session.settings.class_weights
        if how is None:
            present = counts[counts > 0]
            ratio = float(present.max() / present.min())
            wanted = "tempered" if ratio >= IMBALANCE_FOR_WEIGHTS else "none"
            reason = f"the most frequent class has {ratio:.1f} times the pixels of the rarest"
            evidence = {"pixels": dict(zip(names, counts.tolist(), strict=True))}
            how = self._chose(Choice("class_weights", wanted, reason, evidence))
        weights = weigh_classes(counts, how)
        return None if weights is None else tuple(weights)

    def _spread_px(self) -> int:
        """Over how many pixels scores are averaged: as suits patches that train, scored by trees that have not seen them."""
        if self._scorer is None:
            return 1
        arrays, num_classes = self._material.arrays, len(self._material.class_names)
        found = judge_spreads(arrays, self.problem.positions("train")[:_SPREAD_PATCHES], num_classes)
        best = max(found, key=lambda px: found[px])
        said = ", ".join(f"{px}: {value:.3f}" for px, value in found.items())
        reason = f"mean IoU of scores averaged over so many pixels a side, on patches that train ({said})"
        return int(self._chose(Choice("spread_px", best, reason, {str(px): value for px, value in found.items()})))

    def _num_turns(self) -> int:
        if self._features is not None:
            return self._features.store.num_views
        wanted = self._session.settings.augment
        if wanted is None:
            reason = "patches are mirrored and turned: a scene has no upright"
            wanted = self._chose(Choice("augment", "light", reason, UNMEASURED))
        return 1 if wanted == "none" else NUM_TURNS

    def job(self, plan: MaskPlan, **how: Any) -> MaskJob:
        return MaskJob(
            network=self._network(plan),
            patches=self._material.arrays,
            pyramids=None if self._features is None else self._features.store,
            dice=plan.dice,
            class_weights=plan.class_weights,
            num_turns=plan.num_turns,
            weights=self._session.settings.weights,
            **how,
        )

    def _network(self, plan: MaskPlan) -> SegmenterConfig:
        material, scores = self._material, self._scorer is not None
        return SegmenterConfig(
            material.spec,
            len(material.class_names),
            self._cut,
            plan.decoder,
            bands=self._bands,
            scores=scores,
            spread_px=plan.spread_px,
        )

    def trained(self, plan: MaskPlan, done: LoopResult) -> TrainedSegmenter:
        material, settings = self._material, self._session.settings
        return TrainedSegmenter(
            config=self._network(plan),
            state=done.state,
            class_names=material.class_names,
            bands=material.facts[0].band_names,
            normalise=material.normalise,
            standard=material.standard,
            overlap_px=material.overlap_px,
            grid=settings.grid,
            resampling=settings.resampling,
            engine={} if self._features is None else self._features.engine,
            best_epoch=done.best_epoch,
            val=done.val,
            dtype=plan.loop.dtype,
            scorer=self._scorer,
            colours=material.colours,
        )

    def config(self, plan: MaskPlan) -> dict[str, Any]:
        return {"kind": "segmenter", "cut": self._cut, "decoder": plan.decoder}

    def about(self, plan: MaskPlan) -> dict[str, Any]:
        beside = {name: value for name, value in plan.__dict__.items() if name != "loop"}
        return {"cut": self._cut, **beside}


def judge_spreads(arrays: PatchArrays, positions: NDArray[np.int64], num_classes: int) -> dict[int, float]:
    """The mean IoU of kept scores, each averaged over 1, 3 or 5 pixels a side."""
    confusions = {px: np.zeros((num_classes, num_classes)) for px in (1, 3, 5)}
    for position in positions:
        at = np.array([position])
        scores, truth = torch.from_numpy(arrays.scores(at)).float(), arrays.masks(at)[0]
        known = truth < num_classes
        for px, confusion in confusions.items():
            mean = F.avg_pool2d(F.pad(scores, (px // 2,) * 4, mode="replicate"), px, stride=1)
            pairs = truth[known].astype(np.int64) * num_classes + mean.argmax(dim=1)[0].numpy()[known]
            confusion += np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)
    return {px: mean_iou(confusion) for px, confusion in confusions.items()}


def choose_decoder(strides: tuple[int, ...]) -> Choice:
    """Which decoder, why, and where that was measured."""
    if strides == FPN_STRIDES:
        reason = "learnt more than a U-Net in as many epochs on three splits of a small set"
        return Choice("decoder", "fpn", reason, {"claim": "Masks of scenes, docs/claims-history.md"})
    return Choice("decoder", "unet", "it takes any strides; an FPN needs 4,8,16,32")


def problem_of(material: PatchMaterial) -> Problem:
    """The patches as the loop knows them. Masks lie elsewhere: a number that changes with any of them stands for each."""
    ids = [patch.patch_id for patch in material.patches]
    splits = {
        name: np.array([place for place, patch in enumerate(material.patches) if patch.split == name], np.int64)
        for name in ("train", "val", "test")
    }
    if not len(splits["train"]):
        raise DataError(
            "no patch is left to train on",
            code="no-training-patches",
            why="patches that share pixels with val or test are left out, and so are those without a label",
            try_="smaller patches with --patch-size, less --overlap, or smaller --val-share and --test-share",
        )
    stand_in = np.full(len(ids), hash_int(material.digest) >> 1, np.int64)
    return Problem("segmentation", material.class_names, stand_in, splits, ids)
