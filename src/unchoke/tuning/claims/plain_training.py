"""The plain training that several claims are measured on, and whether another way of it computes the same.

In: the bench and a function that reads a picture. Out: a step to run, or an epoch that keeps count of where its seconds went. It
is what a short script does: pictures are read one after the other in the process that trains, from files that the system has in
its memory already; weights begin at random. Two ways are compared by their outputs and gradients. Where layouts or devices
differ, float64 is the judge: a convolutional network with random weights magnifies every rounding, so that two honest ways may
lie far apart, and the question is whether one is as close to the exact result as the other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unchoke.core.clock import StageTimers
from unchoke.core.input_file import open_plain
from unchoke.pixels.image import open_pillow
from unchoke.tuning.compare import Likeness, Numbers, equal_outputs

if TYPE_CHECKING:
    import torch

    from unchoke.tuning.claims.claim_bench import Bench

NETWORK = "tf_efficientnet_lite0"
NUM_CLASSES = 10
_LEARNING_RATE = 1e-4
_CHECKED = 2
_AS_CLOSE = 3.0
_ROUNDING = (1e-4, 1e-2)
"""Of outputs and gradients: a rounding that crosses a kink of an activation changes the gradient by as much as a thousandth."""

Pixels = NDArray[np.uint8]
Read = Callable[[str], Pixels]


class PlainTrainer:
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

    def __init__(self, bench: Bench, trainer: PlainTrainer, paths: Sequence[str], read: Read) -> None:
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
        from unchoke.pixels.resize import resize

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
    with open_plain(path) as file, open_pillow(file) as image:
        return np.asarray(image.convert("RGB"))


def numbers(network: torch.nn.Module, outputs: torch.Tensor) -> Numbers:
    """Outputs of a network in training, and the gradients of its parameters that follow from them."""
    import torch

    named = dict(network.named_parameters())
    grads = torch.autograd.grad(class_loss(outputs), list(named.values()))
    return Numbers(to_array(outputs), {name: to_array(grad) for name, grad in zip(named, grads, strict=True)})


def to_array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return tensor.detach().float().cpu().numpy()


def alike(plain: Numbers, other: Numbers, device: torch.device) -> Likeness:
    """Whether both are equal up to rounding: in float32, or in the shorter one of an accelerator's convolutions."""
    from unchoke.machine.backend import is_cpu

    return equal_outputs(plain, other, "f32" if is_cpu(device) else "tf32")


def likeness_text(likeness: Likeness) -> str:
    """The figures alone: ``outputs differ by 2e-07, cosine of gradients 1.0000``."""
    figures = likeness.figures
    if "outputs" not in figures:
        return likeness.text
    gradients = f", cosine of gradients {figures['gradient_cosine']:.4f}" if "gradient_cosine" in figures else ""
    return f"outputs differ by {figures['outputs']:.1g}{gradients}"


class _Results(NamedTuple):
    """Outputs and gradients as one vector each."""

    outputs: NDArray[np.float64]
    gradients: NDArray[np.float64]


def as_exact(plain: PlainTrainer, other: PlainTrainer, batch_nchw: torch.Tensor) -> tuple[bool, str]:
    """Whether `other` is as close to float64 as `plain` is, on a part of the batch, and the distances in words."""
    side = batch_nchw.shape[-1] // 2
    batch_nchw = batch_nchw[:_CHECKED, :, :side, :side].contiguous()
    exact = _results(copy.deepcopy(plain.network).cpu().double(), batch_nchw.double())
    near, found = (_distances(_results(one.network, one.inputs(batch_nchw)), exact) for one in (plain, other))
    equal = all(mine <= max(_AS_CLOSE * its, least) for mine, its, least in zip(found, near, _ROUNDING, strict=True))
    return (
        equal,
        f"outputs {found[0]:.0e} and gradients {found[1]:.0e} from float64, the plain way {near[0]:.0e} and {near[1]:.0e}",
    )


def _results(network: torch.nn.Module, inputs: torch.Tensor) -> _Results:
    """Outputs and gradients with batch norm at rest, and without the shorter floats of tensor cores."""
    import torch

    network.eval()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        outputs = network(inputs)
        grads = torch.autograd.grad(class_loss(outputs), list(network.parameters()))
    network.train()
    return _Results(_vector([outputs]), _vector(grads))


def _vector(tensors: Sequence[torch.Tensor]) -> NDArray[np.float64]:
    return np.concatenate([tensor.detach().cpu().double().flatten().numpy() for tensor in tensors])


def _distances(found: _Results, exact: _Results) -> list[float]:
    """How far outputs and gradients are from the exact ones, as shares of their length."""
    pairs = zip(found, exact, strict=True)
    return [float(np.linalg.norm(mine - right)) / max(float(np.linalg.norm(right)), 1e-30) for mine, right in pairs]
