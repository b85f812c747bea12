"""Training a segmenter: settle how, plan its memory, run it here or in several processes.

In: a session, the patches, and their cached pyramids where the backbone is frozen. Out: what a run's record needs, with a trained
segmenter. As with other networks, what was chosen is written to `loop.json` when training begins and stands from then on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core import atomic
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError
from unchoke.core.fingerprint import digest, hash_int
from unchoke.core.settings import settings_where
from unchoke.core.units import format_count
from unchoke.features.encoders import digest_tensors
from unchoke.features.extraction import Extraction
from unchoke.machine.backend import keep_freed_memory
from unchoke.machine.policy import UNMEASURED
from unchoke.masks.dihedral import NUM_TURNS
from unchoke.masks.mask_objective import MEAN_IOU, count_pixels, weigh_classes
from unchoke.masks.prepare_patches import PatchMaterial
from unchoke.masks.segment_job import SegmentJob
from unchoke.masks.segment_trial import SegmentTrial
from unchoke.masks.segmenter import FPN_STRIDES, PYRAMID, WHOLE, SegmenterConfig
from unchoke.masks.trained_segmenter import TrainedSegmenter
from unchoke.runs.session import Session
from unchoke.training.data import Problem
from unchoke.training.network.loop_choices import TrainedPart, choose_loop
from unchoke.training.network.loop_config import Finetuned, LoopConfig
from unchoke.training.network.plan_memory import FILE as MEMORY_FILE
from unchoke.training.network.plan_memory import Planned, plan_memory, remember_memory
from unchoke.training.network.running import run_training_job
from unchoke.training.scoring.selection import IMBALANCE_FOR_BALANCED

_THE_RESULT = settings_where(lambda option: option.tells_runs_apart and option.group != "Data")
_DEFAULT_DICE = 0.5
_FILE = "loop.json"


@dataclass(frozen=True)
class How:
    """What is settled before a training and kept: the loop, and what only masks have."""

    loop: LoopConfig
    decoder: str
    dice: float
    class_weights: tuple[float, ...] | None
    num_turns: int

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "loop": self.loop.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> How:
        weights = values["class_weights"]
        return cls(
            **{**values, "loop": LoopConfig(**values["loop"]), "class_weights": None if weights is None else tuple(weights)}
        )


class SegmentTrainer:
    """One segmenter, trained on patches."""

    def __init__(self, session: Session, material: PatchMaterial, features: Extraction | None) -> None:
        settings = session.settings
        self._session, self._material, self._features = session, material, features
        self.cut = PYRAMID if features is not None else WHOLE
        self.problem = problem_of(material)
        wanted = {name: value for name, value in settings.given().items() if name in _THE_RESULT}
        seen = features.fingerprint if features is not None else "pixels"
        self.key = digest(["masks", material.digest, seen, {**wanted, "cut": self.cut}, material.spec.to_dict()])
        part = "the whole network" if self.cut == WHOLE else "a decoder on cached pyramids"
        self.detail = f"{part}, {format_count(len(self.problem.positions('train')), 'patch', 'patches')}"

    def train(self, folder: Path) -> tuple[TrainedSegmenter, Finetuned, dict[str, Any]]:
        """Train (or go on with) the run in `folder`: the segmenter, what training gave, and facts for the record."""
        session, settings = self._session, self._session.settings
        session.chose(keep_freed_memory())
        how = self._settle(folder / _FILE)
        metric = MEAN_IOU if len(self.problem.positions("val")) else "none"
        reason = "the mean over the classes on the val split" if metric == MEAN_IOU else "no val split: the last epoch is kept"
        session.chose(Choice("selection_metric", metric, reason))
        job = SegmentJob(
            network=SegmenterConfig(self._material.spec, len(self._material.class_names), self.cut, how.decoder),  # type: ignore[arg-type]
            patches=self._material.arrays,
            pyramids=None if self._features is None else self._features.store,
            problem=self.problem,
            loop=how.loop,
            metric=metric,
            device=session.policy.device,
            folder=folder / "checkpoints",
            dice=how.dice,
            class_weights=how.class_weights,
            num_turns=how.num_turns,
            weights=settings.weights,
            workers=session.policy.workers,
            pin=session.policy.pin_memory,
            checkpoint_every_s=settings.checkpoint_every,
        )
        planned = plan_memory(session, job, folder / MEMORY_FILE, trial=SegmentTrial.of(job))
        if planned:
            job = planned.applied_to(job)
        done = run_training_job(session, job)
        about = {"training": self._about(how, done, planned), **remember_memory(session, planned, job)}
        return self._trained(job, done), done, about

    def _settle(self, file: Path) -> How:
        """What this run began with, or what is chosen now, which is then written down."""
        session, settings = self._session, self._session.settings
        if file.exists():
            kept = How.from_dict(json.loads(file.read_text(encoding="utf-8")))
            session.chose(Choice("loop", "as begun", f"this run's choices are kept in {file.name}", kept.to_dict()))
            return kept
        whole = self.cut == WHOLE
        loop = choose_loop(session, self.problem, TrainedPart(anything=whole, batch_norm=whole, convolutions=True))
        decoder = settings.decoder or self._chose("decoder", *choose_decoder(self._material.spec.strides))
        dice = settings.dice
        if dice is None:
            dice = self._chose(
                "dice", _DEFAULT_DICE, "half Dice, half cross-entropy: small classes count, and training is steady", UNMEASURED
            )
        how = How(loop, decoder, dice, self._class_weights(), self._num_turns())
        atomic.write_json(file, how.to_dict())
        return how

    def _chose(self, name: str, value: Any, reason: str, evidence: Mapping[str, Any]) -> Any:
        self._session.chose(Choice(name, value, reason, dict(evidence)))
        return value

    def _class_weights(self) -> tuple[float, ...] | None:
        """By how many pixels each class has among the training patches."""
        names = self._material.class_names
        counts = count_pixels(self._material.arrays, self.problem.positions("train"), len(names))
        if not counts.any():
            raise DataError(
                "no pixel of the training patches has a label",
                why="a decoder learns from labelled pixels",
                try_="check --label, --mask or --polygons, and --ignore",
            )
        how = self._session.settings.class_weights
        evidence = {"pixels": dict(zip(names, counts.tolist(), strict=True))}
        if how is None:
            present = counts[counts > 0]
            ratio = float(present.max() / present.min())
            uneven = ratio >= IMBALANCE_FOR_BALANCED
            reason = f"the most frequent class has {ratio:.1f} times the pixels of the rarest"
            how = self._chose("class_weights", "tempered" if uneven else "none", reason, evidence)
        weights = weigh_classes(counts, how)
        return None if weights is None else tuple(weights)

    def _num_turns(self) -> int:
        if self._features is not None:
            return self._features.store.num_views
        wanted = self._session.settings.augment
        if wanted is None:
            wanted = self._chose("augment", "light", "patches are mirrored and turned: a scene has no upright", UNMEASURED)
        return 1 if wanted == "none" else NUM_TURNS

    def _trained(self, job: SegmentJob, done: Finetuned) -> TrainedSegmenter:
        material, settings = self._material, self._session.settings
        return TrainedSegmenter(
            config=job.network,
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
            dtype=job.loop.dtype,
        )

    def _about(self, how: How, done: Finetuned, planned: Planned | None) -> dict[str, Any]:
        """What a reader of the record may want to know of the training itself."""
        return {
            "cut": self.cut,
            "decoder": how.decoder,
            "dice": how.dice,
            "class_weights": how.class_weights,
            "num_turns": how.num_turns,
            "loop": how.loop.to_dict(),
            "num_steps": done.num_steps,
            "resumed_step": done.resumed_step,
            "seconds": {**done.seconds, **({"planning memory": planned.seconds} if planned else {})},
            "out_of_memory_halvings": done.halvings,
            "sub_batch_at_the_end": done.sub_batch,
            "weights_sha256": digest_tensors(done.state),
        }


def choose_decoder(strides: tuple[int, ...]) -> tuple[str, str, dict[str, Any]]:
    """Which decoder, why, and where that was measured."""
    if strides == FPN_STRIDES:
        return (
            "fpn",
            "learnt more than a U-Net in as many epochs on three splits of a small set",
            {"claim": "Masks of scenes, docs/claims.md"},
        )
    return "unet", "it takes any strides; an FPN needs 4,8,16,32", {}


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
            why="patches that share pixels with val or test are left out, and so are those without a label",
            try_="smaller patches with --patch-size, less --overlap, or smaller --val-share and --test-share",
        )
    stand_in = np.full(len(ids), hash_int(material.digest) >> 1, np.int64)
    return Problem("segmentation", material.class_names, stand_in, splits, ids)
