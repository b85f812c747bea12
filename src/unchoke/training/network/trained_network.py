"""A trained network: saved in a file, loaded again, and run on this machine's device.

In: what a training gave. Out: `best_head.pt`, and from it a `ReadyNetwork`, which gives outputs for the samples of a source, in
parts that fit in memory and with the arithmetic the run was trained in. Of a backbone that was cut, only the trained suffix is in
the file; the frozen prefix comes from the encoder's own weights. Which samples are shown, and what the outputs are used for, is
decided by `evaluate`, `predict` and `export`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.errors import DataError
from unchoke.core.events import Note, OnEvent
from unchoke.data.targets import TargetPlan
from unchoke.features.cut import NONE, Cut, cut_network, is_all_frozen
from unchoke.features.encoders import EncoderSpec, bare_encoder
from unchoke.features.recipe import PictureRecipe
from unchoke.machine.backend import autocast, empty_cache, is_cpu, keep_freed_memory, torch_device, torch_dtype
from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import choose_policy
from unchoke.pixels.augment_batch import plain
from unchoke.pixels.resize import Preprocess
from unchoke.pixels.tile_grid import TilePlan
from unchoke.runs.lookup import FoundRun
from unchoke.training.checkpoints import State, load_checkpoint, save_tensors
from unchoke.training.data import Positions, ProblemKind
from unchoke.training.network.feeding import HostBatch, feed
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.photo_job import NetworkSpec
from unchoke.training.network.sources import InputSource
from unchoke.training.network.step import MicroBatch, in_micro_batches, prepare_network
from unchoke.training.network.tiled_network import NetworkConfig, TiledNetwork

NETWORK_FORMAT = "network-1"


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """Weights and everything needed to run them; `val` are the figures that picked them."""

    spec: NetworkSpec
    config: NetworkConfig
    state: State
    kind: ProblemKind
    names: tuple[str, ...]
    targets: TargetPlan | None
    input_names: tuple[str, ...]
    best_epoch: int
    val: dict[str, float]

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the backbone is frozen, so that no other weights are needed."""
        return self.spec.cut == NONE

    def build(self, cut: Cut | None = None) -> TiledNetwork:
        """The network in evaluation mode, on the CPU. `cut`, of its encoder, saves building the backbone's structure again."""
        suffix: nn.Module = nn.Identity()
        if cut is not None:
            suffix = cut.suffix
        elif not is_all_frozen(self.spec.cut):  # the structure alone; its weights are about to be filled in
            backbone = bare_encoder(self.spec.encoder, input_px=self.spec.input_px)
            suffix = cut_network(backbone, self.spec.cut, verify=False).suffix
        network = TiledNetwork(suffix, self.config)
        network.load_state_dict(self.state)
        return network.eval().requires_grad_(False)

    def save(self, path: Path, *, extra: dict[str, Any]) -> None:
        """Write it and `extra` (plain values and tensors) to `path`."""
        spec = self.spec
        content = {
            "format": NETWORK_FORMAT,
            "spec": {
                "encoder": spec.encoder,
                "cut": spec.cut,
                "weights_sha256": spec.weights_sha256,
                "input_px": spec.input_px,
                "tiles": [spec.tiles.streams, spec.tiles.rows, spec.tiles.cols],
                "fusion": spec.fusion,
            },
            "network": self.config.to_dict(),
            "state": self.state,
            "kind": self.kind,
            "names": list(self.names),
            "targets": self.targets.to_dict() if self.targets else None,
            "input_names": list(self.input_names),
            "best_epoch": self.best_epoch,
            "val": self.val,
            "extra": extra,
        }
        save_tensors(path, content)


def load_network(path: Path) -> tuple[TrainedNetwork, dict[str, Any]]:
    """The network in `path` and the `extra` it was saved with."""
    content = load_checkpoint(path)
    if content.get("format") != NETWORK_FORMAT:
        raise DataError(
            f"{path} holds no trained network",
            code="wrong-model-file",
            why=f"its format is {content.get('format')!r}, not {NETWORK_FORMAT!r}",
            try_="give the best_head.pt of a run made with --cut or --tiles by this version",
        )
    spec = NetworkSpec(**{**content["spec"], "tiles": TilePlan(*content["spec"]["tiles"])})
    trained = TrainedNetwork(
        spec=spec,
        config=NetworkConfig.from_dict(content["network"]),
        state=content["state"],
        kind=content["kind"],
        names=tuple(content["names"]),
        targets=TargetPlan.from_dict(content["targets"]) if content["targets"] else None,
        input_names=tuple(content["input_names"]),
        best_epoch=content["best_epoch"],
        val=content["val"],
    )
    return trained, content["extra"]


@dataclass(frozen=True, eq=False)
class ReadyNetwork:
    """A network on its device. `threads` are torch's while it answers; None leaves them as they are."""

    trained: TrainedNetwork
    network: TiledNetwork
    device: torch.device
    dtype: torch.dtype
    size: MicroBatch
    on_event: OnEvent
    workers: int
    threads: int | None = None

    def outputs(
        self, source: InputSource, positions: Positions, inputs: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Outputs (n, names) for the plain views at `positions`; rows of `inputs` are counted as those of `source` are."""
        size, threads = self.size.value, torch.get_num_threads()
        batches = [positions[start : start + size] for start in range(0, len(positions), size)]
        torch.set_num_threads(self.threads or threads)
        try:
            shown = feed(source, batches, epoch=None, device=self.device, workers=self.workers)
            found = [self._answer(fed, inputs) for fed in shown]
        finally:
            torch.set_num_threads(threads)
        return np.concatenate(found) if found else np.empty((0, len(self.trained.names)), np.float32)

    def _answer(self, fed: HostBatch, inputs: NDArray[np.float32] | None) -> NDArray[np.float32]:
        found: list[torch.Tensor] = []

        def run(start: int, stop: int) -> None:
            extra = None if inputs is None else torch.from_numpy(inputs[fed.positions[start:stop]]).to(self.device)
            with torch.inference_mode(), autocast(self.device, self.dtype):
                found.append(self.network(fed.part(start, stop), extra).float().cpu())

        def forget() -> None:
            found.clear()
            empty_cache(self.device)

        in_micro_batches(len(fed), self.size, run, forget=forget, on_event=self.on_event)
        return torch.cat(found).numpy()


def open_network(
    found: FoundRun,
    trained: TrainedNetwork,
    *,
    on_event: OnEvent,
    device: str | None = None,
    cut: Cut | None = None,
    as_in_training: bool = False,
    loop: Mapping[str, Any] | None = None,
    full: bool = False,
) -> ReadyNetwork:
    """Build the network as the run's evaluation had it. `as_in_training` also takes its number of threads, for equal bits.

    `loop` is how it was trained, where the run's record does not say so: it is one of several models. `full` is for float32,
    whatever it was trained in.
    """
    if loop is None:
        recorded = found.record.training.loop if found.record.training else None
        assert recorded is not None, "only a network that was trained is opened again"
        known = {field.name for field in fields(LoopConfig)}  # what this version does not know is passed over
        loop = {name: value for name, value in recorded.to_dict().items() if name in known}
    trained_by = LoopConfig(**loop)
    policy = choose_policy(detect_machine(), device=device)
    place = torch_device(policy)
    keep_freed_memory()
    network = prepare_network(trained.build(cut), replace(trained_by, grad_ckpt=False), place).eval()
    dtype = torch.float32 if full else torch_dtype(trained_by.dtype)
    if dtype is torch.float16 and is_cpu(place):  # which has no float16 arithmetic worth the name
        on_event(Note("the network was trained in float16; on this processor it runs in float32: tiny differences", "warning"))
        dtype = torch.float32
    threads = trained_by.threads if as_in_training else None
    return ReadyNetwork(trained, network, place, dtype, MicroBatch(trained_by.eval_batch), on_event, policy.workers, threads)


class RowsInMemory:
    """Rows that are in memory: activations (n, tiles, …) in float16, or uint8 network inputs (n, tiles, size, size, RGB)."""

    def __init__(self, rows: NDArray[Any], preprocess: Preprocess) -> None:
        self._rows, self._preprocess = rows, preprocess
        self._are_pixels = rows.dtype == np.uint8
        shape = rows.shape[1:]
        self.sample_shape = (shape[0], shape[3], *shape[1:3]) if self._are_pixels else shape
        self.sample_bytes = rows.itemsize * math.prod(rows.shape[1:])

    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        rows = torch.from_numpy(self._rows[positions])
        return rows.pin_memory() if pin else rows

    def prepare(self, raw: torch.Tensor, positions: Positions, epoch: int | None) -> torch.Tensor:
        return plain(raw, mean=self._preprocess.mean, std=self._preprocess.std) if self._are_pixels else raw.float()


def pixel_recipe_of(trained: TrainedNetwork, extra: dict[str, Any]) -> PictureRecipe:
    """How a picture becomes input of a network of which nothing is frozen."""
    return PictureRecipe(EncoderSpec.from_dict(extra["encoder"]), "torch", "f32", tiles=trained.spec.tiles)
