"""What a workspace holds as `torch.utils.data.Dataset`s, for people who keep their own training loop.

In: a workspace that `fit`, `extract` or `tile` filled. Out: map-style datasets of (input, target) pairs. They can be pickled,
so that DataLoader workers may be forked or spawned, and hand out whole batches at once where the loader asks for them.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from unchoke.core.ahead import map_ahead
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.remembered import load_remembered
from unchoke.core.workspace import DEFAULT_ROOT, Workspace, out_option
from unchoke.data.manifest import TEXT_COLUMNS, load_manifest
from unchoke.data.sample_set import is_input
from unchoke.data.several_labels import MULTI_LABEL, task_of
from unchoke.features.feature_store import FeatureStore, map_member, open_stored
from unchoke.jobs.queue import JobQueue
from unchoke.machine.detect import usable_cores
from unchoke.pixels.canvas import Canvas
from unchoke.pixels.image import DecodeError
from unchoke.pixels.pixel_cache import plan_cache
from unchoke.pixels.resize import Preprocess
from unchoke.pixels.slots import held_bytes
from unchoke.pixels.tile_grid import TilePlan
from unchoke.runs.lookup import find_run, stored_runs
from unchoke.scenes.tiling.tile_result import MANIFEST_NAME
from unchoke.training.data import read_targets
from unchoke.training.network.prepare_pixels import StoredPixels, pixel_recipe

Split = Literal["train", "val", "test"]
SPLITS = get_args(Split)
Pair = tuple[Any, torch.Tensor]
_MEAN = (0.0, 0.0, 0.0)


def _refuse_unknown(name: str, value: object, known: tuple[object, ...]) -> None:
    if value not in known:
        choices = ", ".join(map(repr, known))
        raise UsageError(
            f"{name}={value!r} is none of {choices}",
            code="unknown-choice",
            why="there is no such choice",
            try_=f"{name}={known[-1]!r}",
        )


class _Photos(Dataset[Pair]):
    """Samples of one split with their targets: a class number, or a float for each of several labels or columns."""

    def _open(
        self, out: str | Path | None, split: Split | None, transform: Callable[[Any], Any] | None
    ) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
        """The manifest, and which of its rows are in `split`."""
        _refuse_unknown("split", split, (None, *SPLITS))
        self.workspace = Workspace(Path(DEFAULT_ROOT if out is None else out))
        self.split, self.transform = split, transform
        frame = load_manifest(self.workspace.manifest_file)
        if frame is None:
            raise UsageError(
                f"there is no manifest in {self.workspace.root}",
                code="no-manifest",
                why="it says which photos there are, and in which split each is",
                try_=f"unchoke fit PHOTOS{out_option(self.workspace.root)}",
            )
        several = load_remembered(self.workspace).get("multi_label")
        self._task = task_of(MULTI_LABEL if several else "classification", frame.get("label", ()))
        self.classes: tuple[str, ...] = self._task.names
        values = [name for name in frame.columns if name not in (*TEXT_COLUMNS, "fold") and not is_input(name)]
        self.target_names: tuple[str, ...] = () if self.classes else tuple(values)
        wanted = np.ones(len(frame), np.bool_) if split is None else (frame["split"] == split).to_numpy()
        return frame, wanted

    def _keep(self, frame: pd.DataFrame) -> None:
        self.sample_ids: list[str] = frame["sample_id"].tolist()
        self.paths: list[str] = frame["path"].tolist()
        if self.classes:
            self.targets = torch.from_numpy(read_targets(self._task, frame))
        else:
            self.targets = torch.from_numpy(frame[list(self.target_names)].to_numpy(np.float32))

    def __len__(self) -> int:
        return len(self.sample_ids)

    def __getitem__(self, index: int) -> Pair:
        return self.__getitems__([range(len(self))[index]])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Pair]:
        rows = self._rows(np.asarray(indices, np.int64))
        change = self.transform or _as_it_is
        return [(change(row), self.targets[index]) for row, index in zip(rows, indices, strict=True)]

    def _rows(self, positions: NDArray[np.int64]) -> torch.Tensor:
        raise NotImplementedError


class FeatureDataset(_Photos):
    """Cached features of the frozen part, float32: a vector for each photo, or the activations at the cut, tile by tile.

    Those of `run`, or of the newest run that has some. Photos without features (unreadable ones) are left out.
    """

    def __init__(
        self,
        out: str | Path | None = None,
        *,
        split: Split | None = None,
        run: str | None = None,
        transform: Callable[[torch.Tensor], Any] | None = None,
    ) -> None:
        frame, wanted = self._open(out, split, transform)
        of = None if run is None else find_run(run, out=self.workspace.root).record.encoder.fingerprint
        found = find_cached(self.workspace, of=of)
        if found is None:
            raise UsageError(
                f"no features are cached in {self.workspace.root}" + (f" of {run}" if run else ""),
                code="no-features",
                why="a network trained whole reads pixels" if run else "nothing was extracted there",
                try_=f"unchoke extract PHOTOS{out_option(self.workspace.root)}",
            )
        self.fingerprint, self._store = found.fingerprint, found.store
        self.row_shape: tuple[int, ...] = found.store.row_shape
        row_of = {name: row for row, name in enumerate(found.ids)}
        self._keep(frame[wanted & frame["sample_id"].isin(row_of).to_numpy()])
        self._row_of = np.array([row_of[name] for name in self.sample_ids], np.int64)

    def _rows(self, positions: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(self._store.rows(self._row_of[positions]).astype(np.float32))


class PhotoDataset(_Photos):
    """Photos as uint8 tensors (RGB, `size_px`, `size_px`): decoded fully, resized with antialiasing, cropped at the centre.

    With `cache="disk"` every photo is decoded once, when the dataset is first made, into `pixels/` of the workspace; with "none"
    each time it is asked for. A photo whose file changed is decoded again. Those that cannot be decoded are in `failed` with the
    reason, and left out.
    """

    def __init__(
        self,
        out: str | Path | None = None,
        *,
        split: Split | None = None,
        size_px: int = 224,
        cache: Literal["disk", "none"] = "disk",
        transform: Callable[[torch.Tensor], Any] | None = None,
    ) -> None:
        _refuse_unknown("cache", cache, ("disk", "none"))
        if size_px < 1:
            raise UsageError(
                f"photos of {size_px} pixels a side",
                code="out-of-range",
                why="there is nothing to see in them",
                try_="size_px=224",
            )
        frame, wanted = self._open(out, split, transform)
        everything = tuple(frame["sample_id"].tolist())
        canvas = Canvas(TilePlan(), Preprocess(size_px, 1.0, "center", "bicubic", _MEAN, _MEAN))
        folder = self.workspace.root / "pixels" / f"dataset-{pixel_recipe(canvas)[:8]}"
        free_bytes = shutil.disk_usage(self.workspace.root).free + held_bytes(folder)
        plan = plan_cache(len(everything), size_px, size_px, ram_budget_bytes=0, disk_free_bytes=free_bytes, mode=cache)
        self._stored = StoredPixels(everything, tuple(frame["path"].tolist()), ("",) * len(everything), canvas, plan, folder)
        self.failed: dict[str, str] = self._fill() if cache == "disk" else {}
        self._opened: Any = None
        wanted = wanted & ~frame["sample_id"].isin(list(self.failed)).to_numpy()
        self._keep(frame[wanted])
        self._row_of = np.flatnonzero(wanted)

    def _fill(self) -> dict[str, str]:
        with self.workspace.own(), self._stored.open_cache() as cache:
            missing = cache.missing().tolist()
            reasons = map_ahead(cache.why_not, missing, threads=usable_cores(), ahead=64)
            told = zip(missing, reasons, strict=True)
            return {self._stored.sample_ids[position]: reason for position, reason in told if reason}

    def _rows(self, positions: NDArray[np.int64]) -> torch.Tensor:
        if self._opened is None:
            self._opened = self._stored.open_cache(reader=True)
        try:
            rows = self._opened.rows(self._row_of[positions].tolist())
        except DecodeError as error:
            raise DataError(
                f"one of {list_some([self.paths[place] for place in positions])} cannot be decoded",
                code="unreadable-photos",
                why=str(error),
                try_='leave it out, or use cache="disk", which finds such files beforehand',
            ) from error
        return torch.from_numpy(rows).permute(0, 3, 1, 2).contiguous()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


class TileDataset(Dataset[Pair]):
    """Tiles that `unchoke tile` cut: (bands, height, width) as float32, and the mask as int64, empty where there is none."""

    def __init__(
        self,
        out: str | Path | None = None,
        *,
        split: Split | None = None,
        transform: Callable[[torch.Tensor, torch.Tensor], Any] | None = None,
    ) -> None:
        _refuse_unknown("split", split, (None, *SPLITS))
        workspace = Workspace(Path(DEFAULT_ROOT if out is None else out))
        self.folder, self.split, self.transform = workspace.root / "tiles", split, transform
        manifest = self.folder / MANIFEST_NAME
        if not manifest.is_file():
            raise UsageError(
                f"there are no tiles in {workspace.root}",
                code="no-tiles",
                why=f"{manifest} lists them, and is not there",
                try_=f"unchoke tile SCENES{out_option(workspace.root)}",
            )
        with manifest.open(encoding="utf-8", newline="") as file:
            self.rows: list[Mapping[str, str]] = [row for row in csv.DictReader(file) if split in (None, row["split"])]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        with np.load(self.folder / self.rows[index]["path"], allow_pickle=False) as tile:
            bands = torch.from_numpy(tile["bands"].astype(np.float32))
            mask = torch.from_numpy(tile["mask"].astype(np.int64)) if "mask" in tile else torch.empty(0, dtype=torch.int64)
        return (bands, mask) if self.transform is None else self.transform(bands, mask)


def _as_it_is(row: Any) -> Any:
    return row


@dataclass(frozen=True)
class CachedFeatures:
    """Rows of the store belong to `ids`, in this order."""

    fingerprint: str
    ids: list[str]
    store: FeatureStore


def find_cached(
    workspace: Workspace, *, of: str | None = None, fits: Callable[[tuple[int, ...]], bool] = bool
) -> CachedFeatures | None:
    """Those of the fingerprint `of`; else of the newest run whose rows have a shape that `fits`, or what was extracted last."""
    manifest = load_manifest(workspace.manifest_file)
    if manifest is None:
        return None
    queue = JobQueue.load(workspace.features)
    extracted = list(dict.fromkeys(job.fingerprint for job in queue.jobs()))
    runs = stored_runs(out=workspace.root)[::-1] if workspace.experiments_file.exists() else []
    of_runs = [run.fingerprint for run in runs if run.fingerprint in extracted]
    names = manifest["sample_id"].tolist()
    for fingerprint in dict.fromkeys([*of_runs, *extracted[::-1]] if of is None else [of]):
        stored = open_stored(queue, fingerprint, names)
        shapes = [map_member(shard).shape[1:] for shard in stored.placement.shards[:1]]
        if shapes and fits(shapes[0]) and stored.present.any():
            ids = [name for name, there in zip(names, stored.present, strict=True) if there]
            return CachedFeatures(fingerprint, ids, FeatureStore(stored.placement, row_shape=shapes[0]))
    return None
