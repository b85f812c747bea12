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

from unchoke.features.encoders import Encoder
from unchoke.photos.pixels.image import Pixels
from unchoke.photos.pixels.resize import Preprocess

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


class TorchModel:
    """A network on its device, from arrays to float32 arrays. One batch at a time: torch itself uses all cores."""

    def __init__(self, network: nn.Module, *, device: torch.device, precision: str, channels_last: bool) -> None:
        self.device = device
        self.channels_last = channels_last
        self._precision = precision
        self._lock = threading.Lock()
        model = network.eval().to(device)
        self._model = model.to(memory_format=torch.channels_last) if channels_last else model  # type: ignore[call-overload]

    def run(self, inputs: NDArray[Any]) -> Features:
        dtype = _DTYPES[self._precision]
        lower = dtype is not torch.float32
        with self._lock, torch.inference_mode(), torch.autocast(self.device.type, dtype=dtype, enabled=lower):
            found: Features = self._model(torch.from_numpy(inputs).to(self.device)).float().cpu().numpy()
        return found

    def describe(self) -> dict[str, Any]:
        return {"device": str(self.device), "channels_last": self.channels_last, "version": torch.__version__}


class TorchEngine:
    """Plain PyTorch on any device."""

    name = "torch"
    slots = 1

    def __init__(
        self, encoder: Encoder, *, device: torch.device, precision: str = "f32", batch: int = 16, channels_last: bool = False
    ) -> None:
        self.precision = precision
        self.batch = batch
        self.device = device
        self.channels_last = channels_last
        network = FromPixels(encoder.module, encoder.spec.preprocess)
        self._model = TorchModel(network, device=device, precision=precision, channels_last=channels_last)

    def encode(self, pixels_nhwc: Pixels) -> Features:
        return in_padded_batches(pixels_nhwc, self.batch, self._model.run)

    def describe(self) -> dict[str, Any]:
        return {"engine": self.name, "precision": self.precision, "batch": self.batch, **self._model.describe()}


def in_padded_batches(inputs: NDArray[Any], batch: int, run: Callable[[NDArray[Any]], Features]) -> Features:
    """Call `run` on batches of exactly `batch`; what is missing in the last is filled with zeros and cut off again."""
    parts: list[Features] = []
    for start in range(0, max(1, len(inputs)), batch):
        part = inputs[start : start + batch]
        padded = part
        if len(part) < batch:
            padded = np.zeros((batch, *part.shape[1:]), part.dtype)
            padded[: len(part)] = part
        parts.append(run(np.ascontiguousarray(padded))[: len(part)])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
