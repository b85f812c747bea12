"""The contract every engine keeps, what engines run, and the torch engine that defines what is right.

An engine runs a `FrozenNetwork`: it turns a batch of its inputs (uint8 photos n × H × W × RGB, or standardised patches n × bands
× H × W) into float32 features, n × whatever one input becomes. It may be called from several threads. Every batch is padded to
the engine's own batch size, so an item's features never depend on how many others came with it. Plain torch in float32 is the
reference the others are measured against (`agree.py`).
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.errors import MachineError
from unchoke.machine.backend import empty_cache, is_cpu, launch_on
from unchoke.machine.memory.oom import out_of_memory
from unchoke.pixels.resize import Preprocess

Features = NDArray[np.float32]
_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class FrozenEngine(Protocol):
    """Anything that runs the frozen part."""

    name: str
    precision: str
    batch: int
    slots: int
    """How many batches it runs at the same time; as many jobs are worth keeping in flight."""

    def encode(self, inputs: NDArray[Any]) -> Features: ...

    def describe(self) -> dict[str, Any]: ...


class FrozenNetwork(Protocol):
    """A network that is run and not trained, whatever it is shown: `Encoder` for photos, `Pyramid` for patches."""

    @property
    def title(self) -> str:
        """The network in words, for messages."""
        ...

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One input, without the axis of the batch."""
        ...

    @property
    def input_dtype(self) -> type[np.generic]: ...

    def runnable(self) -> nn.Module:
        """What engines convert and run: one tensor of inputs in, one tensor of features out."""
        ...

    def model_name(self, calibration: str) -> str:
        """The folder a converted model is kept in; `calibration` is the digest of what it was quantised with, if it was."""
        ...

    def choice_key(self, wishes: Sequence[str | None]) -> str:
        """What the choice of an engine depends on, `wishes` of the user among it."""
        ...

    def fitting_batch(self, usual: int) -> int:
        """How many inputs make a batch where `usual` photos would."""
        ...


class FromPixels(nn.Module):
    """An encoder with normalisation inside: uint8 NHWC in, features out."""

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
    """Plain PyTorch on any device. One batch at a time: torch itself uses all cores.

    On an accelerator it has weights of its own: the network may be cut again or trained elsewhere meanwhile. A batch that does
    not fit into memory is computed in halves, from then on; `on_halved` hears how many inputs that leaves `at_once`.
    """

    name = "torch"
    slots = 1

    def __init__(
        self,
        network: FrozenNetwork,
        *,
        device: torch.device,
        precision: str = "f32",
        batch: int = 16,
        channels_last: bool = False,
        at_once: int | None = None,
        on_halved: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.precision = precision
        self.batch = batch
        self.at_once, self._on_halved = min(at_once or batch, batch), on_halved
        self.device = device
        self.channels_last = channels_last
        self._lock = threading.Lock()
        model = network.runnable().eval()
        model = model if is_cpu(device) else copy.deepcopy(model).to(device)
        self._model = model.to(memory_format=torch.channels_last) if channels_last else model  # type: ignore[call-overload]

    def leave_device(self) -> None:
        """Free the accelerator's memory for others."""
        self._model.to("cpu")
        empty_cache(self.device)

    def encode(self, inputs: NDArray[Any]) -> Features:
        return in_padded_batches(inputs, self.batch, lambda batch: self.launch(batch).cpu().numpy())

    def launch(self, batch: NDArray[Any] | torch.Tensor) -> torch.Tensor:
        """Features of at most one batch, float32, left on the device: an accelerator may still be computing them."""
        return launch_on(self.device, partial(self._launch, batch))

    def _launch(self, batch: NDArray[Any] | torch.Tensor) -> torch.Tensor:
        inputs = torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch
        with self._lock:
            while True:
                try:
                    return self._run(inputs)
                except (RuntimeError, MemoryError) as error:
                    found = out_of_memory(error)
                    if found is None or not found.can_repeat or (self.at_once == 1 and not found.certain):
                        raise
                    lack = found.message
                if self.at_once == 1:  # outside the handler, so that what the failed frames held is free
                    raise MachineError(
                        f"one input alone does not fit into the memory of {self.device}",
                        code="out-of-memory",
                        why=lack,
                        try_="a smaller --input-px, another --encoder, or --device cpu",
                    )
                self.at_once = -(-self.at_once // 2)
                empty_cache(self.device)
                self._on_halved(self.at_once)

    def _run(self, inputs: torch.Tensor) -> torch.Tensor:
        dtype, parts = _DTYPES[self.precision], list[torch.Tensor]()
        with torch.inference_mode(), torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not torch.float32):
            for start in range(0, max(1, len(inputs)), self.at_once):
                part = inputs[start : start + self.at_once]
                if missing := self.at_once - len(part):
                    part = torch.cat([part, part.new_zeros((missing, *part.shape[1:]))])
                parts.append(self._model(part.to(self.device)).float())
            return (parts[0] if len(parts) == 1 else torch.cat(parts))[: len(inputs)]

    def describe(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "precision": self.precision,
            "batch": self.batch,
            "device": str(self.device),
            "channels_last": self.channels_last,
            "version": torch.__version__,
        }


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


def round_to_half(values: torch.Tensor) -> torch.Tensor:
    """What a conversion to float16 and back gives, by float32 alone: OpenVINO leaves such a conversion out. Finer below 6e-5."""
    shifted = values * (2**13 + 1)
    return shifted - (shifted - values)
