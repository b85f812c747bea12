"""Training through a network: what the cut and the batched tiles gain, per epoch and per step, on any device.

`cut`: the last four blocks train, from cached activations, against the same blocks frozen without a cut: same loop, same loader,
same decoded cache, one view, same seeds. The seconds of an epoch, the validation accuracy of both, and what extraction cost.
`tiles`: all tiles of all pictures in one pass against one pass for each tile, a whole training step.

Usage: python benches/bench_network.py cut --encoder tf_efficientnet_lite0 --photos FOLDER
       PYTHONPATH=src python benches/bench_network.py cut tiles --encoder vit_small_patch14_dinov2 --device cuda

Without photos the pictures are smoothed noise in the colours of four classes and the weights are random: speed is what it is,
and accuracy only shows that both ways learn the same. Needs torch, timm and numpy beside `src/`; photos need simplejpeg.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.events import ignore
from unchoke.core.mixing import hash_ids
from unchoke.features.cut import Cut, cut_network, frozen_part
from unchoke.features.encoders import DEFAULT_ENCODER, Encoder, bare_encoder, load_encoder
from unchoke.features.engines import TorchEngine
from unchoke.features.feature_store import ACTIVATIONS, FeatureStore, Placement, save_shard, to_half
from unchoke.machine.backend import keep_freed_memory, synchronize
from unchoke.pixels.augment_batch import augment_spec
from unchoke.pixels.canvas import Canvas
from unchoke.pixels.pixel_cache import PictureFile, PixelCache
from unchoke.pixels.slots import RamSlots
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.data import Problem
from unchoke.training.network.finetune import NetworkTraining
from unchoke.training.network.loop_config import LoopConfig, LoopContext
from unchoke.training.network.objective import Objective
from unchoke.training.network.sources import ActivationSource, PixelSource
from unchoke.training.network.tiled_network import TiledNetwork

_SHARD = 64


class FrozenFirst(nn.Module):
    """The same network without a cut: the frozen part runs in every step, and no gradient is asked of it."""

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        self.prefix, self.suffix = [cut.prefix], cut.suffix  # in a list: its weights are not the trained network's

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            activations = self.prefix[0](x)  # type: ignore[misc]
        out: torch.Tensor = self.suffix(activations)
        return out


def noise(count: int, side: int, classes: NDArray[np.int64]) -> NDArray[np.uint8]:
    generator = torch.Generator().manual_seed(1)
    tint = torch.rand(int(classes.max()) + 1, 3, 1, 1, generator=generator)
    coarse = torch.rand(count, 3, 14, 14, generator=generator) * 0.7 + 0.3 * tint[torch.from_numpy(classes)]
    parts = [nn.functional.interpolate(part, size=(side, side), mode="bilinear").clamp(0, 1) for part in coarse.split(128)]
    return np.concatenate([(part * 255).byte().permute(0, 2, 3, 1).contiguous().numpy() for part in parts])


def photos(folder: Path, encoder: Encoder) -> tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...]]:
    from unchoke.pixels.image import read_image
    from unchoke.pixels.resize import fit_to_input

    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    files = [(file, number) for number, name in enumerate(names) for file in sorted((folder / name).iterdir())]
    preprocess = encoder.spec.preprocess
    pixels = [fit_to_input(read_image(str(file), cover_px=2 * preprocess.resize_px), preprocess) for file, _ in files]
    return np.stack(pixels), np.array([number for _, number in files], np.int64), tuple(names)


def problem_of(classes: NDArray[np.int64], names: tuple[str, ...]) -> Problem:
    ids = [f"sample {number}" for number in range(len(classes))]
    order = np.argsort(hash_ids(ids)).astype(np.int64)
    held = len(order) // 5
    return Problem("classification", names, classes, {"train": order[held:], "val": order[:held]}, ids)


def extract(part: Encoder, pixels: NDArray[np.uint8], device: torch.device, folder: Path) -> tuple[FeatureStore, float]:
    """Activations in shards on disk, as extraction writes them, by torch in float32."""
    engine = TorchEngine(part, device=device, batch=16 if device.type == "cpu" else 64, channels_last=True)
    started = time.perf_counter()
    shards = []
    for start in range(0, len(pixels), _SHARD):
        rows = to_half(engine.encode(pixels[start : start + _SHARD]))[:, None]
        shards.append(folder / f"{start:06d}.npz")
        save_shard(shards[-1], {ACTIVATIONS: rows}, [str(number) for number in range(start, start + len(rows))])
    where = np.arange(len(pixels), dtype=np.int32)
    placement = Placement(tuple(shards), where // _SHARD, where % _SHARD)
    return FeatureStore(placement, row_shape=rows.shape[1:]), time.perf_counter() - started


def pixel_source(pixels: NDArray[np.uint8], encoder: Encoder, problem: Problem) -> PixelSource:
    side = encoder.spec.preprocess.size_px
    cache = PixelCache(
        RamSlots(len(pixels), side, side),
        [PictureFile(sample_id, 0, 0) for sample_id in problem.sample_ids],
        height=side,
        width=side,
        read=lambda position: pixels[position],
    )
    cache.rows(range(len(pixels)))
    return PixelSource(
        cache, Canvas(TilePlan(), encoder.spec.preprocess), problem.sample_ids, seed=0, augment=augment_spec("none")
    )


def measure_cut(args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    encoder = load_encoder() if args.encoder == DEFAULT_ENCODER else bare_encoder(args.encoder, input_px=224)
    if args.photos:
        pixels, classes, names = photos(Path(args.photos), encoder)
    else:
        classes = np.arange(args.count, dtype=np.int64) % 4
        pixels, names = noise(args.count, encoder.spec.preprocess.size_px, classes), ("a", "b", "c", "d")
    problem = problem_of(classes, names)
    loop = LoopConfig(
        epochs=args.epochs,
        batch_size=args.batch,
        sub_batch=args.batch,
        eval_batch=4 * args.batch,
        lr=1e-3,
        body_lr=1e-4,
        layer_decay=1.0,
        dtype=args.dtype,
        memory_format="channels_last",
        threads=torch.get_num_threads(),
    )
    with tempfile.TemporaryDirectory() as folder:
        cut = cut_network(encoder, "-4")
        store, extract_s = extract(frozen_part(encoder, cut), pixels, device, Path(folder))
        cached = ActivationSource(store, hash_ids(problem.sample_ids), 0)
        plain = pixel_source(pixels, encoder, problem)
        if cut.prefix is not None:
            cut.prefix.to(device)
            if device.type != "mps":
                cut.prefix.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

        def training(whole: bool) -> NetworkTraining:
            fresh = cut_network(encoder, "-4", verify=False).suffix
            suffix = FrozenFirst(replace(cut, suffix=fresh)) if whole else fresh
            objective = Objective.of(problem, device=device)
            network = TiledNetwork.of(suffix, objective, tiles=TilePlan(), dim=encoder.spec.dim, seed=0)
            where = LoopContext(device, None, ignore, workers=args.workers, pin=device.type == "cuda")
            return NetworkTraining(
                network, plain if whole else cached, problem, objective, loop, metric="accuracy", where=where, inputs=None
            )

        both = {"cut -4 (cached)": training(False), "frozen, no cut": training(True)}
        seconds: dict[str, list[float]] = {name: [] for name in both}
        for _ in range(args.epochs):
            for name, one in both.items():  # side by side, so that a busy moment hits both
                started = time.perf_counter()
                one.train_epoch()
                one.end_epoch(one.judge_val())
                synchronize(device)
                seconds[name].append(time.perf_counter() - started)
    epochs = {name: round(statistics.median(found), 3) for name, found in seconds.items()}
    cached_s, plain_s = epochs.values()
    return {
        "bar": "cut",
        "encoder": args.encoder,
        "images": {"train": len(problem.positions("train")), "val": len(problem.positions("val"))},
        "cache_kb_per_image": round(2 * int(np.prod(cut.shape)) / 1000, 1),
        "epoch_s": epochs,
        "all_epochs_s": {name: [round(one, 3) for one in found] for name, found in seconds.items()},
        "ratio": round(plain_s / cached_s, 2),
        "extract_s": round(extract_s, 2),
        "val_accuracy": {name: round(one.standing.curve[-1]["val_accuracy"], 4) for name, one in both.items()},
        "waiting_share": {name: round(one.clock.share("wait"), 3) for name, one in both.items()},
        "spent_s": {
            name: {stage: round(spent, 2) for stage, (spent, _) in one.clock.tally().items()} for name, one in both.items()
        },
    }


def measure_tiles(args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """A step of full training over 2 pictures × 2 streams × 2×2 tiles."""
    encoder = bare_encoder(args.encoder, input_px=224)
    suffix = cut_network(encoder, "none").suffix.to(device)
    tiles = TilePlan(2, 2, 2)
    x = torch.randn(2, tiles.num_tiles, 3, 224, 224, device=device)
    optimizer = torch.optim.AdamW(suffix.parameters(), lr=1e-5, fused=True)
    dtype = getattr(torch, args.dtype)

    def step(run: Callable[[], torch.Tensor]) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not torch.float32):
            loss = run().float().square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def one_pass() -> torch.Tensor:
        out: torch.Tensor = suffix(x.flatten(0, 1))
        return out

    def loop() -> torch.Tensor:
        return torch.cat([suffix(x[:, tile]) for tile in range(tiles.num_tiles)])

    seconds: dict[str, list[float]] = {"one pass": [], "tile loop": []}
    for number in range(args.steps + 3):
        for name, run in (("one pass", one_pass), ("tile loop", loop)):
            synchronize(device)
            started = time.perf_counter()
            step(run)
            synchronize(device)
            if number >= 3:
                seconds[name].append(time.perf_counter() - started)
    steps = {name: round(1000 * statistics.median(found), 2) for name, found in seconds.items()}
    ratio = round(steps["tile loop"] / steps["one pass"], 2)
    return {"bar": "tiles", "encoder": args.encoder, "tiles": tiles.text, "step_ms": steps, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bars", nargs="+", choices=("cut", "tiles"))
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--photos")
    parser.add_argument("--count", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    keep_freed_memory()
    device = torch.device(args.device)
    for bar in args.bars:
        found = measure_cut(args, device) if bar == "cut" else measure_tiles(args, device)
        name = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
        print(json.dumps({**found, "device": name, "dtype": args.dtype, "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
