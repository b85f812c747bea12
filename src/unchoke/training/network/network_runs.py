"""A trained network after its training: put on this machine's device and shown samples again.

In: a run's folder and its `TrainedNetwork`. Out: a `ReadyNetwork`, which answers for whatever a `Source` shows it, in parts that
fit in memory and with the arithmetic the run was trained in; and two sources, of picture files and of rows at hand. Which samples
are shown, and what becomes of the answers, is decided by `evaluate`, `predict` and `export`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.errors import DataError, list_some
from unchoke.core.events import Note, OnEvent
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.units import format_count
from unchoke.features.cut import Cut
from unchoke.features.encoders import EncoderSpec
from unchoke.features.extractor import decode_views
from unchoke.features.recipe import PictureRecipe
from unchoke.machine.backend import autocast, empty_cache, is_cpu, keep_freed_memory, torch_device, torch_dtype
from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import choose_policy
from unchoke.photos.inspect_samples import load_facts
from unchoke.photos.manifest import load_manifest
from unchoke.photos.pixels.augment_batch import plain
from unchoke.photos.pixels.image import DecodeError, Pixels, read_bytes
from unchoke.photos.pixels.resize import Preprocess
from unchoke.runs.lookup import FoundRun
from unchoke.training.data import Positions
from unchoke.training.network.feeding import Fed, feed
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.modes import prepare_network
from unchoke.training.network.sources import Source
from unchoke.training.network.step import PartSize, in_parts
from unchoke.training.network.tiled_network import TiledNetwork
from unchoke.training.network.trained_network import TrainedNetwork

Columns = NDArray[np.float32]
"""Extra numbers (n, inputs), as they stand in the table."""


@dataclass(frozen=True, eq=False)
class ReadyNetwork:
    """A network on its device. `threads` are torch's while it answers; None leaves them as they are."""

    trained: TrainedNetwork
    network: TiledNetwork
    device: torch.device
    dtype: torch.dtype
    size: PartSize
    on_event: OnEvent
    workers: int
    threads: int | None = None

    def outputs(self, source: Source, positions: Positions, inputs: Columns | None = None) -> NDArray[np.float32]:
        """Outputs (n, names) for the plain views at `positions`; rows of `inputs` are counted as those of `source` are."""
        size = self.size.value
        batches = [positions[start : start + size] for start in range(0, len(positions), size)]
        with _torch_threads(self.threads):
            shown = feed(source, batches, epoch=None, device=self.device, workers=self.workers)
            found = [self._answer(fed, inputs) for fed in shown]
        return np.concatenate(found) if found else np.empty((0, len(self.trained.names)), np.float32)

    def _answer(self, fed: Fed, inputs: Columns | None) -> NDArray[np.float32]:
        found: list[torch.Tensor] = []

        def run(start: int, stop: int) -> None:
            extra = None if inputs is None else torch.from_numpy(inputs[fed.positions[start:stop]]).to(self.device)
            with torch.inference_mode(), autocast(self.device, self.dtype):
                found.append(self.network(fed.part(start, stop), extra).float().cpu())

        def forget() -> None:
            found.clear()
            empty_cache(self.device)

        in_parts(len(fed), self.size, run, forget=forget, on_event=self.on_event)
        return torch.cat(found).numpy()


def open_network(
    found: FoundRun,
    trained: TrainedNetwork,
    *,
    on_event: OnEvent,
    device: str | None = None,
    cut: Cut | None = None,
    as_in_training: bool = False,
) -> ReadyNetwork:
    """Build the network as the run's evaluation had it. `as_in_training` also takes its number of threads, for equal bits."""
    loop = loop_of(found.record)
    policy = choose_policy(detect_machine(), overrides={"device": device})
    place = torch_device(policy)
    keep_freed_memory()
    network = prepare_network(trained.build(cut), replace(loop, grad_ckpt=False), place).eval()
    dtype = _dtype_here(loop, place, on_event)
    threads = loop.threads if as_in_training else None
    return ReadyNetwork(trained, network, place, dtype, PartSize(loop.eval_batch), on_event, policy.workers, threads)


def loop_of(record: dict[str, Any]) -> LoopConfig:
    """How a run was trained, from its record; what this version does not know is passed over."""
    known = {field.name for field in fields(LoopConfig)}
    return LoopConfig(**{name: value for name, value in record["training"]["loop"].items() if name in known})


def _dtype_here(loop: LoopConfig, device: torch.device, on_event: OnEvent) -> torch.dtype:
    """The run's own; a processor has no float16 arithmetic worth the name."""
    dtype = torch_dtype(loop.dtype)
    if dtype is torch.float16 and is_cpu(device):
        on_event(Note("the network was trained in float16; on this processor it runs in float32: tiny differences", "warning"))
        return torch.float32
    return dtype


@contextmanager
def _torch_threads(num: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(num or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class GivenRows:
    """Rows that are in memory: activations (n, tiles, …) in float16, or uint8 network inputs (n, tiles, size, size, RGB)."""

    def __init__(self, rows: NDArray[Any], preprocess: Preprocess) -> None:
        self._rows, self._preprocess = rows, preprocess
        self._are_pixels = rows.dtype == np.uint8
        self.sample_shape = _input_shape(rows.shape[1:]) if self._are_pixels else rows.shape[1:]
        self.sample_bytes = rows.itemsize * math.prod(rows.shape[1:])

    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        rows = torch.from_numpy(self._rows[positions])
        return rows.pin_memory() if pin else rows

    def prepare(self, raw: torch.Tensor, positions: Positions, epoch: int | None) -> torch.Tensor:
        return plain(raw, mean=self._preprocess.mean, std=self._preprocess.std) if self._are_pixels else raw.float()


def _input_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    tiles, height, width, colours = shape
    return tiles, colours, height, width


@dataclass(frozen=True, eq=False)
class PictureFiles:
    """Pictures decoded when they are asked for, as evaluation shows them to a network of which all was trained."""

    sample_ids: Sequence[str]
    paths: Sequence[str]
    contents: Sequence[str]
    recipe: PictureRecipe

    @property
    def pixel_shape(self) -> tuple[int, ...]:
        side = self.recipe.encoder.preprocess.size_px
        return self.recipe.tiles.num_tiles, side, side, 3

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return _input_shape(self.pixel_shape)

    @property
    def sample_bytes(self) -> int:
        return math.prod(self.pixel_shape)

    def pixels(self, positions: Positions) -> Pixels:
        """The network inputs (n, tiles, size, size, RGB); a file that is gone or changed is named."""
        out: Pixels = np.empty((len(positions), *self.pixel_shape), np.uint8)
        for place, position in enumerate(positions):
            try:
                out[place] = self._decode(int(position))
            except DecodeError as error:
                raise _pictures_lost([f"{self.sample_ids[position]} ({error})"]) from error
        return out

    def _decode(self, position: int) -> list[Pixels]:
        data = read_bytes(self.paths[position])
        if self.contents[position] and digest_bytes(data) != self.contents[position]:
            raise DecodeError("changed", "it is not the file that was judged")
        return decode_views(data, self.sample_ids[position], self.recipe)

    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        pixels = torch.from_numpy(self.pixels(positions))
        return pixels.pin_memory() if pin else pixels

    def prepare(self, raw: torch.Tensor, positions: Positions, epoch: int | None) -> torch.Tensor:
        preprocess = self.recipe.encoder.preprocess
        return plain(raw, mean=preprocess.mean, std=preprocess.std)


def pixel_recipe_of(trained: TrainedNetwork, extra: dict[str, Any]) -> PictureRecipe:
    """How a picture becomes input of a network of which nothing is frozen."""
    return PictureRecipe(EncoderSpec.from_dict(extra["encoder"]), "torch", "f32", tiles=trained.spec.tiles)


def open_pictures(
    found: FoundRun, trained: TrainedNetwork, extra: dict[str, Any], sample_ids: Sequence[str], *, on_event: OnEvent
) -> PictureFiles:
    """The files of `sample_ids`, where the workspace's manifest says they are, held against what `check` knows of them."""
    assert found.workspace is not None
    manifest = load_manifest(found.workspace.manifest_file)
    known = {} if manifest is None else dict(zip(manifest["sample_id"], manifest["path"], strict=True))
    lost = [sample_id for sample_id in sample_ids if sample_id not in known]
    if lost:
        raise _pictures_lost([f"{sample_id} (not in manifest.csv)" for sample_id in lost])
    facts = load_facts(found.workspace, on_event)
    contents = dict(zip(facts["path"], facts["content"].fillna(""), strict=True))
    paths = [str(known[sample_id]) for sample_id in sample_ids]
    return PictureFiles(sample_ids, paths, [str(contents.get(path, "")) for path in paths], pixel_recipe_of(trained, extra))


def _pictures_lost(named: Sequence[str]) -> DataError:
    return DataError(
        f"{format_count(len(named), 'judged picture')} cannot be read: {list_some(named)}",
        why="with --cut none nothing is cached: pictures are read from where manifest.csv says they are",
        try_="put the files back, or `unchoke runs export` the run while they are there: small ones travel with it",
    )
