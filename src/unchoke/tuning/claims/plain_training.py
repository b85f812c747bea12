"""The plain training that several claims are measured on: one network, one step, one pass over picture files.

In: the bench and a function that reads a picture. Out: a step to run, or an epoch that keeps count of where its seconds went. It
is what a short script does: pictures are read one after the other in the process that trains, from files that the system has in
its memory already; weights begin at random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.timers import StageTimers

if TYPE_CHECKING:
    import torch

    from unchoke.tuning.claims.claim_bench import Bench

NETWORK = "tf_efficientnet_lite0"
NUM_CLASSES = 10
_LEARNING_RATE = 1e-4

Pixels = NDArray[np.uint8]
Read = Callable[[str], Pixels]


class Trainer:
    """A network with its optimizer on one device, in training mode."""

    def __init__(self, device: torch.device, *, channels_last: bool = False) -> None:
        import torch

        self.device = device
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.network = build_network(NETWORK, device)
        self.network.to(memory_format=self.format)  # type: ignore[call-overload]
        self._optimizer = torch.optim.AdamW(self.network.parameters(), lr=_LEARNING_RATE)

    def step(self, batch_nchw: torch.Tensor) -> float:
        """Forward, backward and update; the loss, which waits for the device."""
        loss = class_loss(self.network(self.inputs(batch_nchw)))
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return float(loss.detach())

    def inputs(self, batch_nchw: torch.Tensor) -> torch.Tensor:
        """The batch on the device, in the network's layout."""
        return batch_nchw.to(self.device).contiguous(memory_format=self.format)


def class_loss(outputs: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of classes that go round: what is learned does not matter."""
    import torch

    classes = torch.arange(len(outputs), device=outputs.device) % outputs.shape[1]
    return torch.nn.functional.cross_entropy(outputs, classes)


def build_network(name: str, device: torch.device, **options: Any) -> torch.nn.Module:
    """A timm network with random weights, the same each time."""
    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    import timm
    import torch

    torch.manual_seed(0)
    network: torch.nn.Module = timm.create_model(name, pretrained=False, **{"num_classes": NUM_CLASSES, **options})
    return network.to(device).train()


def noise_batch(count: int, height: int, width: int, *, seed: int = 0) -> torch.Tensor:
    """Network inputs, count × 3 × height × width: nothing about their content changes the time they take."""
    import torch

    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(seed))


def to_batch(pictures: Sequence[Pixels]) -> torch.Tensor:
    """Pictures of one size as float32, n × 3 × height × width, from 0 to 1."""
    import torch

    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float().div(255)


class Epoch:
    """Picture files through `read`, a resize and a training step, batch by batch.

    `timers` has what each took over all runs but the first, in which everything is slower.
    """

    def __init__(self, bench: Bench, trainer: Trainer, paths: Sequence[str], read: Read) -> None:
        self.timers = StageTimers()
        self._trainer, self._paths, self._read = trainer, paths, read
        self._batch, self._input_px = bench.batch, bench.sizes.input_px
        self._warm = False

    def run(self) -> None:
        for start in range(0, len(self._paths), self._batch):
            pictures = [self._load(path) for path in self._paths[start : start + self._batch]]
            with self.timers.stage("step"):
                self._trainer.step(to_batch(pictures))
        if not self._warm:
            self.timers.seconds.clear()
            self._warm = True

    def share(self, stage: str) -> float:
        """How much of the epoch a stage takes."""
        return self.timers.seconds[stage] / sum(self.timers.seconds.values())

    def _load(self, path: str) -> Pixels:
        from unchoke.photos.pixels.resize import resize

        with self.timers.stage("decode"):
            picture = self._read(path)
        with self.timers.stage("resize"):
            return resize(picture, self._input_px, self._input_px, interpolation="bilinear")


def plain_reader() -> tuple[str, Read]:
    """How a script usually reads a picture, and the name of what it uses: OpenCV where it is installed, else Pillow."""
    if find_spec("cv2") is None:
        return "Pillow", _read_with_pillow
    cv2 = import_module("cv2")
    return "OpenCV", lambda path: cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)


def _read_with_pillow(path: str) -> Pixels:
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))
