"""The model of a run that draws masks, ready to be written and compared.

In: a run of `segment train` in its workspace. Out: a `MaskExport`: the model of one window, facts, windows to fit int8 to, and
the comparison with the run itself: windows of its test side, and scenes of many sizes put together by the shipped script.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.boxes import Box
from unchoke.core.errors import UnchokeError
from unchoke.core.events import ignore
from unchoke.core.units import format_count
from unchoke.exports.agreement import AnswerLikeness, ModelAgreement, ModelSpeed, compare, measure_each_s
from unchoke.exports.example_script import load_script
from unchoke.exports.export_photos import judged_on_nothing, refuse_away, spread
from unchoke.exports.mask_model import MaskModel, MaskParts
from unchoke.features.encoders import load_encoder
from unchoke.features.engines import TorchEngine
from unchoke.masks.patches import LIMIT, BandStandard, Patch, read_scaled
from unchoke.masks.prepare_patches import PatchMaterial, prepare_patches
from unchoke.masks.score_network import ScoreNetwork
from unchoke.masks.segmenter import WHOLE
from unchoke.masks.stitch import plan_stitch, stitch
from unchoke.masks.trained_segmenter import (
    EngineUse,
    Predictor,
    PredictorSpec,
    TrainedSegmenter,
    join_parts,
    load_segmenter,
    open_predictor,
)
from unchoke.runs.lookup import FoundRun
from unchoke.runs.session import open_session
from unchoke.scenes.scale import PERCENTILES, measure_scale
from unchoke.training.load_model import describe_weights
from unchoke.training.saved_models import weights_of

Scaled = NDArray[np.float32]
_BATCH = 8
_MOST_WINDOWS, _CALIBRATION_WINDOWS, _TIMED = 32, 64, 4


@contextmanager
def opened_masks(found: FoundRun, weights: str | Path | None) -> Iterator[MaskExport]:
    """The export of a run, its scenes open meanwhile. What `segment train` kept of them is used; nothing new is remembered."""
    refuse_away(found)
    assert found.workspace is not None, "it was refused"
    settings = {**found.record.settings, "weights": weights or found.record.settings.get("weights")}
    trained = load_segmenter(found.folder)
    with open_session(settings, out=found.workspace.root, on_event=ignore, remembering=False) as session:
        material = prepare_patches(session)
        sides = {split: [one for one in material.patches if one.split == split] for split in ("test", "val", "train")}
        split = next((split for split in ("test", "val") if sides[split]), None)
        if split is None:
            raise judged_on_nothing(found.record.run, "patches of scenes")
        judged = spread(sides[split], _MOST_WINDOWS)
        yield MaskExport(found, trained, material, split, judged, sides["train"], weights_of(found, weights))
        material.reader.pool.close()


@dataclass(frozen=True, eq=False)
class MaskExport:
    """A model of masks on its way out."""

    found: FoundRun
    trained: TrainedSegmenter
    material: PatchMaterial
    split: str
    judged: list[Patch]
    train: list[Patch]
    weights: Path | None

    @property
    def model(self) -> MaskModel:
        trained = self.trained
        frozen = None if trained.cut == WHOLE else trained.load_backbone(self.weights).runnable()
        scorer = None if trained.scorer is None else ScoreNetwork(trained.scorer)
        sees_bands, standard, side = trained.config.bands, trained.standard, trained.spec.patch_px
        return MaskModel(MaskParts(trained.build(), frozen, scorer, sees_bands, standard.mean, standard.std, LIMIT, side))

    @property
    def compared_on(self) -> str:
        """``12 test windows``"""
        return format_count(len(self.judged), f"{self.split} window")

    def facts(self) -> dict[str, Any]:
        """What is written into the file besides what every file says."""
        trained, bands = self.trained, self.material.facts[0].bands
        files: dict[str, str] = {}
        for band in bands:
            files.setdefault(band.path, band.name)
        places = list(files)
        return {
            "names": list(trained.class_names),
            "bands": list(self.material.band_names),
            "files": list(files.values()),
            "bands_in_files": [[places.index(band.path), band.number] for band in bands],
            "window_px": trained.spec.patch_px,
            "overlap_px": trained.overlap_px,
            "scale": _scale_facts(trained, self.material),
            "weights": [self._weights()],
        }

    def _weights(self) -> dict[str, str]:
        """A network that trained as a whole has its weights inside: those it began with may be gone."""
        spec = self.trained.spec
        try:
            encoder = load_encoder(spec.encoder, weights=self.weights)
            return describe_weights(encoder.module, encoder.spec)
        except UnchokeError as error:
            return {"encoder": spec.encoder, "from": "?", "sha256": spec.weights_sha256, "licence": f"not known: {error.what}"}

    def samples(self) -> list[NDArray[Any]]:
        """Windows of the train side, each a batch of one."""
        return [self._window(patch)[None] for patch in spread(self.train, _CALIBRATION_WINDOWS)]

    def compare(self, built: Path) -> ModelAgreement:
        """The files in `built` beside the run in plain float32 torch, pixel by pixel where they have values."""
        script, windows = load_script(built), [self._window(patch) for patch in self.judged]
        predict = self._plain()
        standard = self.trained.standard
        likenesses = []
        for window in windows:
            ours, theirs = predict(_standardised(window, standard)[None])[0], script.ask(window[None])[0]
            likenesses.append(_compare_pixels(ours, theirs, _known(window)))
        sizes = tried_sizes(self.trained.spec.patch_px)
        of_sizes = [self.compare_scene(script, filled_scene(windows[0], height, width)) for width, height in sizes]
        return ModelAgreement(
            split=self.split,
            unit="window",
            num_compared=len(windows),
            photos=_worst(likenesses),
            sizes=[list(size) for size in sizes],
            other_sizes=_worst(of_sizes),
            recorded=None,
            speed=self._speed(script, spread(windows, _TIMED)),
        )

    def compare_scene(self, script: Any, scene: Scaled) -> AnswerLikeness:
        """A whole scene, put together by the script and by unchoke."""
        trained, predict = self.trained, self._plain()
        height, width = scene.shape[1:]
        side = trained.spec.patch_px
        plan = plan_stitch(height, width, patch_px=side, overlap_px=trained.overlap_px, num_classes=trained.num_classes)
        padded = np.full((len(scene), height + 2 * side, width + 2 * side), np.nan, np.float32)
        padded[:, :height, :width] = scene

        def of_boxes(boxes: list[Box]) -> NDArray[np.float32]:
            cut = (padded[:, box.top : box.bottom, box.left : box.right] for box in boxes)
            return predict(np.stack([_standardised(window, trained.standard) for window in cut]))

        ours = np.empty((trained.num_classes, height, width), np.float32)
        for band, values in stitch(plan, of_boxes, batch=_BATCH):
            ours[:, band.top : band.bottom, band.left : band.right] = values
        return _compare_pixels(ours, script.predict(scene), _known(scene))

    def _plain(self) -> Predictor:
        plain = replace(self.trained, dtype="float32")
        device = torch.device("cpu")
        engine = None if plain.cut == WHOLE else TorchEngine(plain.load_backbone(self.weights), device=device, batch=_BATCH)
        opened = join_parts(plain, engine, device=device, batch=_BATCH)
        return lambda patches: opened.decode(opened.encode(patches))

    def _speed(self, script: Any, windows: list[Scaled]) -> ModelSpeed:
        model, use = self.model, EngineUse.of(self.trained.engine)
        keep_in = str(self.found.workspace.engines) if self.found.workspace else ""
        weights = None if self.weights is None else str(self.weights)
        opened = open_predictor(
            PredictorSpec(str(self.found.folder), weights, "cpu", use, streams=1, keep_in=keep_in), batch=_BATCH
        )
        batch = np.stack([_standardised(windows[0], self.trained.standard)] * _BATCH)

        def by_torch(window: Scaled) -> None:
            with torch.inference_mode():
                model(torch.from_numpy(window[None]))

        usual_s = measure_each_s(lambda rows: opened.decode(opened.encode(rows)), [batch]) / _BATCH
        engine = f"{use.name} {use.precision}" if use.name else f"torch {self.trained.dtype}"
        file_s, torch_s = measure_each_s(lambda window: script.ask(window[None]), windows), measure_each_s(by_torch, windows)
        return ModelSpeed(file_s, usual_s, engine, torch_s)

    def _window(self, patch: Patch) -> Scaled:
        """On the scene's scale, not a number where the patch has no values."""
        reader = self.material.reader
        scale = reader.scales[patch.scene_id]
        bands, valid = read_scaled(reader.facts[patch.scene_id], patch.box, pool=reader.pool, scale=scale)
        bands[:, ~valid] = np.nan
        return bands


def tried_sizes(side_px: int) -> tuple[tuple[int, int], ...]:
    """Widths and heights of scenes: smaller than a window, one, some and many of them."""
    return (33, 33), (47, 33), (side_px, side_px), (2 * side_px + 7, side_px + 1)


def filled_scene(window: Scaled, height: int, width: int) -> Scaled:
    """A scene of any size, of one window repeated and mirrored."""
    far = np.concatenate([np.concatenate([window, window[:, :, ::-1]], 2), np.concatenate([window, window], 2)[:, ::-1]], 1)
    return np.ascontiguousarray(np.tile(far, (1, -(-height // far.shape[1]), -(-width // far.shape[2])))[:, :height, :width])


def _scale_facts(trained: TrainedSegmenter, material: PatchMaterial) -> dict[str, Any]:
    """What the script divides bands by: fixed numbers, or how they are measured of each scene."""
    kind, _, rest = trained.normalise.partition(":")
    percentiles = [float(part) for part in rest.split(",")] if kind == "percentile" and rest else list(PERCENTILES)
    measured = kind in ("max", "percentile")
    one = [1.0] * len(trained.bands or material.band_names)
    fixed = one if measured else list(measure_scale(material.facts[0], trained.normalise, pool=material.reader.pool).divide)
    return {"kind": kind if measured else "fixed", "divide": fixed, "percentiles": percentiles}


def _standardised(window: Scaled, standard: BandStandard) -> NDArray[np.float16]:
    known = _known(window)
    return standard.apply(np.where(known, window, np.float32(0)), known)


def _known(scene: Scaled) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(scene).all(axis=0))


def _compare_pixels(ours: NDArray[np.float32], theirs: NDArray[np.float32], known: NDArray[np.bool_]) -> AnswerLikeness:
    """Of the pixels that have values; a scene without any is as it should be."""
    if not known.any():
        return AnswerLikeness(1.0, 0.0, 0.0)
    return compare(ours[:, known].T.astype(np.float64), theirs[:, known].T.astype(np.float64), is_class=True)


def _worst(several: list[AnswerLikeness]) -> AnswerLikeness:
    """Over all pixels: windows have as many, so their means are averaged; of scenes, whose sizes differ, that is about right."""
    shares = [one.top1 for one in several if one.top1 is not None]
    means = [one.mean_difference for one in several]
    return AnswerLikeness(sum(shares) / len(shares), max(one.difference for one in several), sum(means) / len(means))
