"""Do both ways compute the same? Their outputs and gradients held against each other, or against the same in float64.

In: what both ways gave, or two trainers with the same weights and some inputs. Out: whether they agree, and figures in words.
Where layouts or devices differ, float64 is the judge: a convolutional network with random weights magnifies every rounding, so
that two honest ways may lie far apart, and the question is whether one is as close to the exact result as the other.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unchoke.tuning.claims.plain_training import Trainer, class_loss
from unchoke.tuning.compare import Likeness, Numbers, equal_outputs

if TYPE_CHECKING:
    import torch

_CHECKED = 2
_AS_CLOSE = 3.0
_ROUNDING = (1e-4, 1e-2)
"""Of outputs and gradients: a rounding that crosses a kink of an activation changes the gradient by as much as a thousandth."""


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
    outputs: NDArray[np.float64]
    gradients: NDArray[np.float64]


def as_exact(plain: Trainer, other: Trainer, batch_nchw: torch.Tensor) -> tuple[bool, str]:
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
