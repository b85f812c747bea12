"""The frozen part and the heads on a CUDA device: do the numbers agree with the CPU's, and how fast is each precision?

Needs only torch, torchvision, timm and numpy beside `src/`; weights are random and pixels are smoothed noise, so
only agreement and speed mean anything here. Usage: PYTHONPATH=src python benches/bench_cuda.py
"""

from __future__ import annotations

import json
import statistics
import time

import numpy as np
import torch

from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.agree import compare
from unchoke.features.encoders import Encoder, EncoderSpec
from unchoke.features.engines import TorchEngine
from unchoke.pixels.resize import Preprocess
from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.train_heads import train_heads

MODELS = ("tf_efficientnet_lite0", "resnet50", "vit_small_patch14_dinov2")


def encoder(name: str) -> Encoder:
    prepare_torchvision()
    import timm

    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False, num_classes=0, **({"img_size": 224} if "vit" in name else {})).eval()
    preprocess = Preprocess(224, 0.875, "center", "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    return Encoder(module, EncoderSpec(name, "random", "", int(module.num_features), preprocess))


def pictures(count: int) -> np.ndarray:
    coarse = torch.rand(count, 3, 14, 14, generator=torch.Generator().manual_seed(1))
    fine = torch.nn.functional.interpolate(coarse, size=(224, 224), mode="bicubic").clamp(0, 1)
    return (fine * 255).byte().permute(0, 2, 3, 1).contiguous().numpy()


def rate(engine: TorchEngine, pixels: np.ndarray) -> float:
    engine.encode(pixels[: 2 * engine.batch])
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        engine.encode(pixels)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return round(len(pixels) / statistics.median(seconds), 1)


def engines(name: str) -> dict[str, object]:
    built, pixels = encoder(name), pictures(1024)
    cpu = TorchEngine(built, device=torch.device("cpu")).encode(pixels[:64])
    found: dict[str, object] = {}
    for precision, channels_last in (("f32", False), ("f32", True), ("f16", True), ("bf16", True)):
        engine = TorchEngine(built, device=torch.device("cuda"), precision=precision, batch=64, channels_last=channels_last)
        agreement = compare(cpu, engine.encode(pixels[:64]))
        label = f"{precision}{' channels_last' if channels_last else ''}"
        found[label] = {
            "images_per_s": rate(engine, pixels),
            "mean_cosine": round(agreement.mean_cosine, 5),
            "worst_centred": round(agreement.worst_centred, 5),
        }
        del engine
    return found


def heads() -> dict[str, object]:
    random = np.random.default_rng(0)
    centres = random.normal(size=(10, 256))
    targets = random.integers(0, 10, 4000)
    feats = (centres[targets] + 6 * random.normal(size=(4000, 256))).astype(np.float16)
    order = np.arange(4000, dtype=np.int64)
    splits = {"train": order[:2800], "val": order[2800:3400], "test": order[3400:]}
    names = tuple(str(number) for number in range(10))
    problem = Problem("classification", names, targets.astype(np.int64), splits, [str(number) for number in order])
    scores = {}
    for kind in ("cpu", "cuda"):
        started = time.perf_counter()
        result = train_heads(
            ArraySource(feats), problem, [HeadConfig(), HeadConfig("mlp")], device=torch.device(kind), on_event=lambda event: None
        )
        val = [one.val_metric for one in result.all]
        scores[kind] = {"val": val, "seconds": round(time.perf_counter() - started, 2)}
    return scores


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing to measure")
        raise SystemExit
    shown = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    print(json.dumps({"bench": "cuda", **shown, "engines": {name: engines(name) for name in MODELS}, "heads": heads()}))
