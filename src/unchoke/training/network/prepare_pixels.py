"""Pixels for training through the whole network: decoded once, kept in memory or on disk, bad files set aside beforehand.

In: a session and the pictures. Out: the encoder and a `StoredPixels` that training opens, which pictures are in it, and why the
others are not. The first pass decodes what the cache does not hold yet, in threads; a run that is continued finds it filled.
What cannot be kept (`--cache none`, or no room for all) is decoded every time; `check` has read those files once already.
A `StoredPixels` is a plain value: any process can open the same cache from it, and gets the same pixels.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import checksums
from unchoke.core.ahead import map_ahead
from unchoke.core.choices import Choice
from unchoke.core.clock import Loading, during
from unchoke.core.errors import MachineError
from unchoke.core.events import Progress
from unchoke.core.fingerprint import digest, digest_file
from unchoke.core.input_file import size_and_time
from unchoke.core.timeline import Timeline
from unchoke.core.units import format_bytes, format_count
from unchoke.data.file_findings import too_many_failed
from unchoke.data.inspect_samples import load_facts, read_size
from unchoke.features.cut import NONE
from unchoke.features.encoders import Encoder
from unchoke.features.prepare_engine import Picture, open_encoder
from unchoke.features.recipe import DECODING
from unchoke.jobs.loader_processes import worth_processes
from unchoke.machine.backend import is_cpu, torch_device
from unchoke.machine.detect import detect_machine
from unchoke.pixels.augment_batch import augment_spec
from unchoke.pixels.canvas import Canvas, plan_canvas
from unchoke.pixels.draw_rows import draw_row, fill_in_processes
from unchoke.pixels.image import Pixels, may_pass
from unchoke.pixels.pixel_cache import Mode, PictureFile, PixelCache, open_cache, plan_cache
from unchoke.pixels.slots import held_bytes
from unchoke.pixels.tile_grid import plan_tiles
from unchoke.runs.session import Session
from unchoke.training.build_record import EncoderUse
from unchoke.training.network.sources import PixelSource

_TELL_EVERY_S = 0.2
_RAM_SHARE = 0.4
_LIMIT_SHARE = 0.25
_PICTURE_PX = 3, 4
"""Height and width of a usual picture, of which noise is drawn."""


@dataclass(frozen=True, eq=False)
class PreparedPixels:
    """`present[i]` says whether picture i can be trained on; `failed` maps the ids of the others to their reasons."""

    encoder: Encoder
    use: EncoderUse
    source: StoredPixels
    present: NDArray[np.bool_]
    failed: dict[str, str]


def prepare_pixels(session: Session, pictures: Sequence[Picture]) -> PreparedPixels:
    """Decode whatever is not kept yet, and say what can be trained on."""
    settings = session.settings
    with session.stage("engine", settings.encoder):
        encoder = open_encoder(session)
    session.remember_settings()
    augment = settings.augment
    if augment is None:
        augment = "light"
        session.chose(Choice("augment", augment, augment_spec(augment).meaning))
    # kept where the user says; else where that was tuned, as long as it fits; else where it suits
    tuned = session.tuned.choice("cache") if settings.cache is None else None
    try:
        stored = plan_pixels(session, pictures, encoder, mode=tuned.value if tuned else settings.cache)
        if tuned is not None:
            stored = replace(stored, cache=replace(stored.cache, reason=tuned.reason))
    except MachineError as error:
        if tuned is None:
            raise
        session.warn(f"pictures are not kept as was tuned on {session.tuned.date} ({tuned.value}): {error.why}")
        stored = plan_pixels(session, pictures, encoder)
    stored = replace(stored, augment=augment)
    session.chose(stored.cache)
    stored, failed, num_decoded = fill_pixels(session, stored)
    present = np.array([picture.sample_id not in failed for picture in pictures])
    # what the inputs of training depend on, the pictures themselves left out
    spec = encoder.spec.to_dict()
    del spec["weights_from"]  # the same weights from another place are the same weights
    fingerprint = digest({"encoder": spec, "pixels": pixel_recipe(stored.canvas), "augment": augment})
    use = EncoderUse(encoder.spec, {"engine": "torch", "precision": "f32"}, fingerprint, 0, num_decoded, NONE)
    return PreparedPixels(encoder, use, stored, present, failed)


def plan_pixels(session: Session, pictures: Sequence[Picture], encoder: Encoder, *, mode: Mode | None = None) -> StoredPixels:
    """How the pictures will lie in the cache, and where that is; nothing is decoded or written."""
    settings = session.settings
    tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
    # sizes as `check` found them; read from the file where it did not look
    facts = load_facts(session.workspace, session.on_event)
    known = dict(zip(facts["path"], zip(facts["width"].tolist(), facts["height"].tolist(), strict=True), strict=True))
    sizes = [known[picture.path] if picture.path in known else read_size(picture.path) for picture in pictures]
    canvas = plan_canvas(tiles, encoder.spec.preprocess, sizes)
    folder = session.workspace.root / "pixels" / pixel_recipe(canvas)[:8]
    cache = choose_cache(session, canvas, len(pictures), folder, mode)
    columns = zip(*((picture.sample_id, picture.path, picture.content) for picture in pictures), strict=True)
    ids, paths, contents = columns if pictures else ((), (), ())
    return StoredPixels(ids, paths, contents, canvas, cache, folder)


def choose_cache(session: Session, canvas: Canvas, num_images: int, folder: Path, mode: Mode | None) -> Choice:
    """Left to itself: the disk where all pictures fit, because the next run finds them there; else as `plan_cache` says."""
    session.workspace.root.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(session.workspace.root).free + held_bytes(folder)

    def planned(ram_budget_bytes: int) -> Choice:
        return plan_cache(num_images, *canvas.row_shape, ram_budget_bytes=ram_budget_bytes, disk_free_bytes=free_bytes, mode=mode)

    if mode is None and (on_disk := planned(0)).evidence["capacity_rows"] == num_images:
        taken = f"{format_count(num_images, 'picture')} take {format_bytes(on_disk.evidence['bytes'])}"
        reason = f"{taken} of {format_bytes(free_bytes)} free: decoded once, for this run and the next"
        return replace(on_disk, reason=reason)
    several = session.num_started > 1 or session.trains_on_nodes or int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and mode is None:
        return planned(0)  # each process would hold its own copy; a cache on the disk is shared
    budget_bytes = int(_RAM_SHARE * detect_machine(session.workspace.root).memory_available_bytes)
    limit = session.settings.memory_bytes
    if limit is not None and is_cpu(torch_device(session.policy)):
        budget_bytes = min(budget_bytes, int(_LIMIT_SHARE * limit))
    return planned(budget_bytes)


def fill_pixels(session: Session, stored: StoredPixels) -> tuple[StoredPixels, dict[str, str], int]:
    """Decode what the cache has room for and does not hold; return it ready to open, what failed, and how many were decoded."""
    cache = stored.open_cache()
    try:
        content = dict(zip(stored.sample_ids, stored.contents, strict=True))
        failed = {  # before, with the same content, and would fail again
            sample_id: entry["reason"]
            for sample_id, entry in checksums.recall_json(stored.folder / "failed.json", session.warn).items()
            if content.get(sample_id, "") == entry["content"] != "" and not may_pass(entry["reason"])
        }
        missing = [position for position in cache.missing().tolist() if stored.sample_ids[position] not in failed]
        wanted = missing[: max(0, cache.capacity_rows - cache.num_valid)]
        if wanted:
            with session.stage("pixels", f"decoding {format_count(len(wanted), 'picture')}"):
                _fill(session, stored, cache, wanted, failed)
        _refuse_too_many(session, stored, failed)
    finally:
        if stored.cache.value != "ram":
            cache.close()
    return replace(stored, filled=cache if stored.cache.value == "ram" else None), failed, len(wanted)


def _fill(session: Session, stored: StoredPixels, cache: PixelCache, wanted: list[int], failed: dict[str, str]) -> None:
    """Decode the pictures at `wanted`, by processes where there are cores for them, adding to `failed`; what failed is remembered
    even if this is stopped on the way.
    """
    loading, workers = Loading(), session.policy.workers

    def decode(position: int) -> tuple[int, str]:
        with loading.here():
            return position, cache.why_not(position)

    if worth_processes(len(wanted), workers=workers):
        files = [(position, stored.paths[position], stored.contents[position]) for position in wanted]
        drawn = fill_in_processes(cache, stored.canvas, files, processes=workers, loading=loading)
    else:
        drawn = map_ahead(decode, wanted, threads=workers, ahead=4 * max(1, workers))
    started = told = time.monotonic()
    try:
        for done, (position, reason) in enumerate(drawn, start=1):
            if reason:
                failed[stored.sample_ids[position]] = reason
                _refuse_too_many(session, stored, failed)
            now = time.monotonic()
            if now - told > _TELL_EVERY_S or done == len(wanted):
                rate = done / max(now - started, 1e-6)
                session.on_event(Progress("pixels", done, len(wanted), "images", rate, (len(wanted) - done) / rate, len(failed)))
                told = now
    finally:
        file = stored.folder / "failed.json"
        content = dict(zip(stored.sample_ids, stored.contents, strict=True))
        if failed or file.exists():
            entries = {sample_id: {"content": content[sample_id], "reason": reason} for sample_id, reason in failed.items()}
            stored.folder.mkdir(parents=True, exist_ok=True)
            checksums.save_checked_json(file, entries)
    session.timelines["pixels"] = Timeline.of(None, loading)


def _refuse_too_many(session: Session, stored: StoredPixels, failed: dict[str, str]) -> None:
    """Stop once more pictures have failed than may: something is wrong with the data, not with a file or two."""
    if (error := too_many_failed(failed, len(stored.sample_ids), session.settings.max_failures)) is not None:
        raise error


@dataclass(frozen=True, eq=False)
class StoredPixels:
    """Samples by position: id, path and SHA-256 of the file ("" where nobody knows it). `cache` is what `plan_cache` chose.

    `filled` is a cache in this process's memory; it does not travel to other processes, which fill their own.
    """

    sample_ids: tuple[str, ...]
    paths: tuple[str, ...]
    contents: tuple[str, ...]
    canvas: Canvas
    cache: Choice
    folder: Path
    augment: str = "none"
    filled: PixelCache | None = field(default=None, repr=False)

    @property
    def ram_bytes(self) -> int:
        """What the pictures take of this process's memory."""
        return int(self.cache.evidence["bytes"]) if self.cache.value == "ram" else 0

    @property
    def held_bytes(self) -> int:
        return self.ram_bytes if self.filled is not None else 0

    @property
    def sample_bytes(self) -> int:
        return math.prod(self.canvas.raw_shape)

    def open(self, sample_ids: Sequence[str], seed: int) -> PixelSource:
        """What training reads, in the order of `sample_ids`."""
        if self.cache.value == "noise":
            noise: Any = _NoiseCache(self.canvas)
            return PixelSource(noise, self.canvas, sample_ids, seed=seed, augment=augment_spec(self.augment))
        place = {sample_id: position for position, sample_id in enumerate(self.sample_ids)}
        rows = np.array([place[sample_id] for sample_id in sample_ids], np.int64)
        cache = self.filled if self.filled is not None else self.open_cache(reader=True)
        return PixelSource(cache, self.canvas, sample_ids, seed=seed, augment=augment_spec(self.augment), rows=rows)

    def open_cache(self, *, reader: bool = False) -> PixelCache:
        """The cache, to fill it or, as one of any number of readers, to use what was filled."""
        height, width = self.canvas.row_shape
        sources = [_stamped(*file) for file in zip(self.sample_ids, self.paths, self.contents, strict=True)]
        return open_cache(
            self.cache,
            sources,
            folder=self.folder,
            height=height,
            width=width,
            read=self.draw,
            recipe=pixel_recipe(self.canvas),
            reader=reader,
        )

    def draw(self, position: int) -> Pixels:
        """The row of one picture, decoded now."""
        return draw_row(self.paths[position], self.contents[position], self.canvas)

    def noise(self) -> StoredPixels:
        return noise_pixels(self.canvas, self.augment)

    def digests(self) -> dict[str, str]:
        """Of each file by sample id: as `check` knows it, else by reading it."""
        files = zip(self.sample_ids, self.paths, self.contents, strict=True)
        return {sample_id: content or digest_file(path) for sample_id, path, content in files}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "filled": None}


def noise_pixels(canvas: Canvas, augment: str = "none") -> StoredPixels:
    """Pictures that are all the same noise: for trials of memory."""
    return StoredPixels((), (), (), canvas, Choice("cache", "noise", "for trials of memory"), Path(), augment)


class _NoiseCache:
    def __init__(self, canvas: Canvas) -> None:
        height, width = (4 * canvas.preprocess.resize_px * side // min(_PICTURE_PX) for side in _PICTURE_PX)
        noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
        self._row: Pixels = canvas.draw(noise)

    def read_into(self, row: int, out: Pixels) -> None:
        out[:] = self._row


def pixel_recipe(canvas: Canvas) -> str:
    """A text that changes whenever rows would be made another way."""
    return digest({"canvas": canvas.to_dict(), "decoding": DECODING})


def _stamped(sample_id: str, path: str, content: str) -> PictureFile:
    """A picture is known by its content; by size and time only where nobody computed one."""
    if content:
        return PictureFile(sample_id, 0, 0, content)
    try:
        with during("stat"):
            size_bytes, mtime_ns = size_and_time(path)
    except OSError:
        return PictureFile(sample_id, 0, 0)  # reading it will say what is wrong
    return PictureFile(sample_id, size_bytes, mtime_ns)
