"""What the page of `unchoke ui` asks other rooms for: findings of `curate`, photos that are alike, a model's answer.

In: a workspace. Out: the plain values of `page/page_sources.py`. Features are those that `fit` cached, and a model is
opened when it is first asked; both stay open until a newer run is there.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.checksums import making_sense
from unchoke.core.errors import UsageError
from unchoke.core.events import ignore
from unchoke.core.input_file import parse_json, read_plain
from unchoke.core.units import format_number
from unchoke.core.workspace import Workspace, out_option
from unchoke.curation.curation import FINDINGS
from unchoke.curation.data_finding import KINDS, UNDECIDABLE, DataFinding, settle_findings
from unchoke.data.manifest import load_manifest
from unchoke.masks.mask_pictures import DrawnMask, list_masks, picture_of_mask, picture_of_scene
from unchoke.page.catalogue import Stamp, photo_id, stamp_of
from unchoke.page.page_sources import IMAGE, PREDICTION, LikePhoto, LikePhotos, PhotoAnswer, ReviewItem, SceneMask
from unchoke.pixels.image import DecodeError, open_pillow, refuse_bombs
from unchoke.runs.lookup import FoundRun, find_run, stored_runs

if TYPE_CHECKING:
    from unchoke.features.nearest import UnitRows
    from unchoke.training.open_models import OpenModel
    from unchoke.training.predict import RowShape

_NUM_LIKE = 24
_NUM_NEAREST = 12
_MOST_ROWS = 5
_MOST_PIXELS = 64_000_000
"""Of a picture that is dropped on the page: a small file may hold many pixels, and all of them are decoded and resized."""
_NAME = "photo"
"""What a picture that was sent is called while a model looks at it."""


@dataclass(frozen=True, eq=False)
class _Features:
    """Rows of cached features and whose they are."""

    fingerprint: str
    ids: list[str]
    units: UnitRows
    num_dims: int

    def nearest(self, unit: NDArray[np.float32], *, num: int, among: NDArray[np.bool_] | None = None) -> list[LikePhoto]:
        """The rows most like a unit vector."""
        import torch

        block = 4096
        wanted = torch.from_numpy(unit)
        cosines = torch.cat([self.units(slice(start, start + block)) @ wanted for start in range(0, len(self.ids), block)])
        found: NDArray[np.float32] = cosines.numpy()
        if among is not None:
            found = np.where(among, found, -np.inf)
        best = np.argsort(-found, kind="stable")[:num]
        return [LikePhoto(self.ids[row], float(found[row])) for row in best.tolist() if np.isfinite(found[row])]


@dataclass(frozen=True, eq=False)
class _Opened:
    """A model that was opened."""

    found: FoundRun
    model: OpenModel
    shape: RowShape


class PageAnswers:
    """Answers of one workspace. Safe to call from several threads; models and features are asked one at a time."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._read: tuple[Stamp, list[DataFinding]] = (None, [])
        self._features: tuple[Any, _Features | None] | None = None
        self._opened: dict[Path, _Opened] = {}
        self._seeing: _Opened | None = None
        """What turns pictures into features, where the model that is asked does not."""
        self._data = b""

    def findings(self, decided: Collection[str]) -> list[ReviewItem]:
        """What `curate` found, as the queue shows it."""
        known = settle_findings(self._findings(), decided)
        return [
            ReviewItem(
                id=one.id,
                kind=one.kind,
                about=KINDS.get(one.kind, one.kind),
                message=one.message,
                photos=one.photos,
                suggested=one.suggested,
                settled=one.settled,
                waits=one.kind not in UNDECIDABLE and bool(one.photos),
                target=str(one.evidence.get("target", "")),
            )
            for one in known
        ]

    def _findings(self) -> list[DataFinding]:
        file = self._workspace.curation / FINDINGS
        stamp = stamp_of(file)
        if stamp is None:
            return []
        if self._read[0] != stamp:
            with making_sense(file, try_=f"unchoke curate{out_option(self._workspace.root)}"):
                self._read = (stamp, [DataFinding.from_dict(one) for one in parse_json(read_plain(file))["findings"]])
        return self._read[1]

    def masks(self) -> list[SceneMask]:
        """The masks that `segment predict` drew into this workspace."""
        return [_scene_mask(one) for one in list_masks(self._workspace.masks)]

    def paint(self, mask: SceneMask, layer: str) -> NDArray[np.uint8]:
        """The scene, or the mask over it."""
        drawn = next(one for one in list_masks(self._workspace.masks) if _scene_mask(one).id == mask.id)
        return picture_of_scene(drawn) if layer == IMAGE else picture_of_mask(drawn)

    def similar(self, sample_id: str, *, among: Collection[str] | None = None, num: int = _NUM_LIKE) -> LikePhotos:
        """The photos most like one (of those in `among`), by their cached features."""
        with self._lock:
            features = self._cached()
            if features is None:
                fit = f"`unchoke fit{out_option(self._workspace.root)}`"
                return LikePhotos(why_not=f"No features of the photos are cached: {fit} keeps them.")
            if sample_id not in features.ids:
                return LikePhotos(why_not="This photo has no cached features: it could not be read, or is newer than they are.")
            row = features.ids.index(sample_id)
            unit: NDArray[np.float32] = features.units(np.array([row]))[0].numpy()
            mask = None if among is None else np.array([name in among for name in features.ids])
            found = features.nearest(unit, num=num + 1, among=mask)
        return LikePhotos(tuple(one for one in found if one.sample_id != sample_id)[:num])

    def _cached(self) -> _Features | None:
        """The features of the newest run that has some, else of whatever was extracted last."""
        from unchoke.jobs.queue import QUEUE_NAME

        stamps = (stamp_of(self._workspace.features / QUEUE_NAME), stamp_of(self._workspace.manifest_file), self._run_names())
        if self._features is None or self._features[0] != stamps:
            self._features = (stamps, self._load_features())
        return self._features[1]

    def _run_names(self) -> tuple[str, ...]:
        """Finished runs, the newest first."""
        if not self._workspace.experiments_file.exists():
            return ()
        return tuple(run.name for run in stored_runs(out=self._workspace.root)[::-1] if run.status == "done")

    def _load_features(self) -> _Features | None:
        from unchoke.features.nearest import UnitRows
        from unchoke.training.workspace_datasets import find_cached

        if (found := find_cached(self._workspace, fits=lambda shape: len(shape) == 1)) is None:
            return None
        rows = found.store.rows(np.arange(found.store.num_samples, dtype=np.int64))
        return _Features(found.fingerprint, found.ids, UnitRows(rows), found.store.dim)

    def ask(self, data: bytes) -> PhotoAnswer:
        """What the newest model says of a picture; a `DecodeError` for one that cannot be decoded."""
        from unchoke.training.open_models import PictureChunk, answer_chunk, show_picture

        with self._lock:
            self._data = data
            try:
                opened = self._model()
                with open_pillow(data) as header:
                    refuse_bombs(*header.size, most=_MOST_PIXELS)
                views = show_picture(opened.model, _NAME, self._sent)
                if isinstance(views, DecodeError):
                    raise views
                answer = answer_chunk(opened.model, PictureChunk(0, (_NAME,)), [views])
                row = opened.shape.rows([_NAME], answer.outputs)[0]
                nearest, note = self._nearest(opened)
                if answer.strange is not None and answer.strange[0] > 1:
                    note = f"It is less like the training photos than 99 % of the validation photos. {note}".strip()
            finally:
                self._data = b""
        run = opened.found.record.run
        if opened.model.kind != "regression":
            shares = sorted(((name, float(row[f"p/{name}"])) for name in opened.model.names), key=lambda one: -one[1])
            told = tuple((name, share, f"{100 * share:.1f} %") for name, share in shares[:_MOST_ROWS])
            return PhotoAnswer(run, told, True, nearest, note)
        values = tuple((name, float(row[name]), _value_words(row, name)) for name in opened.model.names)
        return PhotoAnswer(run, values, False, nearest, note)

    def _sent(self, _path: str) -> bytes:
        return self._data

    def _model(self) -> _Opened:
        """The newest model that says something of photos."""
        root = self._workspace.root
        runs = (find_run(name, out=root) for name in self._run_names())
        found = next((run for run in runs if not run.record.draws_masks), None)
        if found is None:
            fit = f"unchoke fit PHOTOS{out_option(root)}"
            raise UsageError(
                "there is no model to ask", code="no-finished-run", why="no run of this workspace has ended", try_=fit
            )
        return self._open(found)

    def _open(self, found: FoundRun) -> _Opened:
        from unchoke.training.open_models import OpenOptions, open_model
        from unchoke.training.predict import RowOptions, RowShape

        if found.folder not in self._opened:
            model = open_model(found, [_NAME], OpenOptions(None, None, None, ignore, self._sent))
            options = RowOptions(probabilities=model.kind != "regression")
            shape = RowShape.of(found, model, options)
            self._opened = {folder: one for folder, one in self._opened.items() if one is self._seeing}
            self._opened[found.folder] = _Opened(found, model, shape)
        return self._opened[found.folder]

    def _nearest(self, opened: _Opened) -> tuple[tuple[LikePhoto, ...], str]:
        """The training photos nearest to the picture that was sent, in the features that are cached of them."""
        from unchoke.training.open_models import show_picture

        features = self._cached()
        seeing = None if features is None else self._eyes(features, opened)
        manifest = load_manifest(self._workspace.manifest_file)
        if features is None or seeing is None or manifest is None:
            return (), "There are no nearest photos to show: no run of this workspace is a head on cached features."
        views = show_picture(seeing.model, _NAME, self._sent)
        if isinstance(views, DecodeError):
            raise views
        row = seeing.model.engines[0].encode(np.stack(views[:1])).reshape(1, -1).astype(np.float16)
        unit: NDArray[np.float32] = features.units.of(row)[0].numpy()
        side = dict(zip(manifest["sample_id"].tolist(), manifest["split"].tolist(), strict=True))
        trained = np.array([side.get(name) == "train" for name in features.ids])
        note = "" if seeing is opened else f"Nearest as {seeing.found.record.run} sees them."
        return tuple(features.nearest(unit, num=_NUM_NEAREST, among=trained)), note

    def _eyes(self, features: _Features, opened: _Opened) -> _Opened | None:
        """A run whose frozen network made the cached features: the one that is asked, or an earlier one."""
        if _sees(opened.found, features):
            return opened
        runs = (find_run(name, out=self._workspace.root) for name in self._run_names())
        found = next((run for run in runs if _sees(run, features)), None)
        if found is not None:
            self._seeing = self._open(found)
        return self._seeing if found is not None else None


def _scene_mask(mask: DrawnMask) -> SceneMask:
    layers: dict[str, tuple[str, ...]] = {} if mask.problem else {PREDICTION: (str(mask.file),)}
    if mask.bands and not mask.problem:
        layers = {IMAGE: tuple(dict.fromkeys(path for _, path, _ in mask.shown_bands)), **layers}
    shares = [f"{name} {100 * share:.1f} %" for name, share in (mask.shares or {}).items()]
    told = mask.problem or ", ".join(shares) + (
        "" if mask.bands else "; its scene is not on this machine: the mask alone is shown"
    )
    return SceneMask(photo_id(str(mask.file)), mask.run, mask.scene, told, mask.width, mask.height, mask.legend, layers)


def _sees(found: FoundRun, features: _Features) -> bool:
    """Whether a run is a head on just these features."""
    is_head = not (found.record.draws_masks or found.trains_network or found.is_blend)
    return is_head and found.record.encoder.fingerprint == features.fingerprint


def _value_words(row: dict[str, Any], name: str) -> str:
    low, high = row.get(f"{name}/low"), row.get(f"{name}/high")
    value = format_number(float(row[name]))
    return value if low is None or high is None else f"{value} ({format_number(low)} to {format_number(high)})"
