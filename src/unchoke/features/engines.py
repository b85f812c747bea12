"""The contract every engine keeps, and the torch engine that defines what is right.

An engine turns uint8 pixels (n × H × W × RGB) into float32 features, normalisation included: n × D from a whole encoder, n × the
shape of the activations from one that is cut. It may be called from
several threads. Every batch is padded to the engine's own batch size, so a picture's features never depend on how many
others came with it. Plain torch in float32 is the reference the others are measured against (`agree.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.decode.image import Pixels
from unchoke.decode.resize import Preprocess
from unchoke.features.encoders import Encoder

Features = NDArray[np.float32]
_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Engine(Protocol):
    """Anything that runs the frozen part."""

    name: str
    precision: str
    batch: int
    slots: int
    """How many batches it runs at the same time; as many jobs are worth keeping in flight."""

    def encode(self, pixels_nhwc: Pixels) -> Features: ...

    def describe(self) -> dict[str, Any]: ...


class FromPixels(nn.Module):
    """The encoder with normalisation inside: uint8 NHWC in, features out. What engines convert and compile."""

    offset: torch.Tensor
    scale: torch.Tensor

    def __init__(self, module: nn.Module, preprocess: Preprocess) -> None:
        super().__init__()
        self.module = module
        mean = torch.tensor(preprocess.mean, dtype=torch.float64).view(1, 3, 1, 1)
        std = torch.tensor(preprocess.std, dtype=torch.float64).view(1, 3, 1, 1)
        self.register_buffer("offset", (mean * 255).float())
        self.register_buffer("scale", (1 / (std * 255)).float())

    def forward(self, pixels_nhwc: torch.Tensor) -> torch.Tensor:
        pixels = pixels_nhwc.permute(0, 3, 1, 2).float()
        features: torch.Tensor = self.module((pixels - self.offset) * self.scale)
        return features


class TorchEngine:
    """Plain PyTorch on any device. One batch at a time: torch spreads a batch over the cores by itself."""

    name = "torch"
    slots = 1

    def __init__(
        self, encoder: Encoder, *, device: torch.device, precision: str = "f32", batch: int = 16, channels_last: bool = False
    ) -> None:
        self.precision = precision
        self.batch = batch
        self.device = device
        self.channels_last = channels_last
        self._lock = threading.Lock()
        model = FromPixels(encoder.module, encoder.spec.preprocess).eval().to(device)
        self._model = model.to(memory_format=torch.channels_last) if channels_last else model  # type: ignore[call-overload]

    def encode(self, pixels_nhwc: Pixels) -> Features:
        return in_padded_batches(pixels_nhwc, self.batch, self._encode_batch)

    def _encode_batch(self, pixels_nhwc: Pixels) -> Features:
        dtype = _DTYPES[self.precision]
        lower = dtype is not torch.float32
        with self._lock, torch.inference_mode(), torch.autocast(self.device.type, dtype=dtype, enabled=lower):
            features: Features = self._model(torch.from_numpy(pixels_nhwc).to(self.device)).float().cpu().numpy()
        return features

    def describe(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "precision": self.precision,
            "batch": self.batch,
            "device": str(self.device),
            "channels_last": self.channels_last,
            "version": torch.__version__,
        }


def in_padded_batches(pixels_nhwc: Pixels, batch: int, run: Callable[[Pixels], Features]) -> Features:
    """Call `run` on batches of exactly `batch`; what is missing in the last is filled with zeros and cut off again."""
    parts: list[Features] = []
    for start in range(0, len(pixels_nhwc), batch):
        part = pixels_nhwc[start : start + batch]
        padded = part
        if len(part) < batch:
            padded = np.zeros((batch, *part.shape[1:]), np.uint8)
            padded[: len(part)] = part
        parts.append(run(np.ascontiguousarray(padded))[: len(part)])
    return np.concatenate(parts)
