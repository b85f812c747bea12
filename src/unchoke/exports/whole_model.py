"""A run's trained parts as one network: pixels in, probabilities or values out.

In: what was loaded of a run: a frozen network with a head, a cut or whole network, or several of them with their shares. Out:
modules in evaluation mode, on the CPU, whose arithmetic is that of `predict` with plain float32 torch: features are rounded to
float16 where training rounded them. Nothing here reads files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from unchoke.data.several_labels import MULTI_LABEL
from unchoke.exports.photo_input import PhotoInput
from unchoke.features.encoders import Encoder
from unchoke.features.engines import FromPixels, round_to_half
from unchoke.pixels.resize import Preprocess
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.heads.heads import TrainedHead, forward
from unchoke.training.ladder.blend import Share
from unchoke.training.network.tiled_network import TiledNetwork

_TINY = 1e-12


class PortableModel(nn.Module):
    """What can be written: one tensor in, called ``pixels``, whose `free_sides` may have any length; one out, called `output`."""

    free_sides: tuple[str, ...] = ("n",)
    networks = ("frozen", "network", "pyramid", "decoder")
    """Modules that may compute in 8 bits; what lies around them, such as the resize, must stay exact."""

    def __init__(self, output: str) -> None:
        super().__init__()
        self.output = output

    def example(self) -> torch.Tensor:
        """A batch of two."""
        raise NotImplementedError


class HeadAnswers(nn.Module):
    """Photos (n, height, width, RGB) to the outputs of a head on the features of a frozen network."""

    mean: torch.Tensor
    inverse_std: torch.Tensor
    target_mean: torch.Tensor
    target_std: torch.Tensor

    def __init__(self, frozen: Encoder, head: TrainedHead) -> None:
        super().__init__()
        self.shown = PhotoInput(frozen.spec.preprocess, TilePlan())
        self.frozen = frozen.runnable()
        self.kind, self.is_class = head.config.kind, head.kind != "regression"
        self.kept = {name: f"head_{name.replace('.', '_')}" for name in head.params}  # torch takes no dots in names
        for name, values in head.params.items():
            self.register_parameter(self.kept[name], nn.Parameter(values))
        self.register_buffer("mean", torch.from_numpy(head.standardiser.mean))
        self.register_buffer("inverse_std", torch.from_numpy(head.standardiser.std).reciprocal())
        self.register_buffer("target_mean", torch.from_numpy(head.target_mean))
        self.register_buffer("target_std", torch.from_numpy(head.target_std))

    def embed(self, pixels: torch.Tensor) -> torch.Tensor:
        """The features that the head looks at."""
        return round_to_half(self.frozen(self.shown(pixels).permute(0, 2, 3, 1)))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features = self.embed(pixels)
        params = {name: getattr(self, kept) for name, kept in self.kept.items()}
        outputs = forward(self.kind, params, (features - self.mean) * self.inverse_std)
        return outputs if self.is_class else outputs * self.target_std + self.target_mean


class NetworkAnswers(nn.Module):
    """Photos to the outputs of a network that was trained whole, or behind a frozen part."""

    def __init__(self, frozen: Encoder | None, network: TiledNetwork, preprocess: Preprocess) -> None:
        super().__init__()
        self.shown = PhotoInput(preprocess, network.config.tiles)
        self.rounds = frozen is not None
        self.frozen = FromPixels(nn.Identity(), preprocess) if frozen is None else frozen.runnable()
        self.network = network

    def embed(self, pixels: torch.Tensor) -> torch.Tensor:
        """The features that the last layer looks at."""
        found: list[torch.Tensor] = []
        hook = self.network.head.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
        try:
            self(pixels)
        finally:
            hook.remove()
        return found[0]

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        inputs = self.frozen(self.shown(pixels).permute(0, 2, 3, 1))
        inputs = round_to_half(inputs) if self.rounds else inputs
        answered: torch.Tensor = self.network.answer(self.network.suffix(inputs))
        return answered


class BlendAnswers(nn.Module):
    """What several models say together, as `training.ladder.blend` has it."""

    def __init__(self, models: Sequence[nn.Module], shares: Sequence[Share], *, kind: str) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.shares, self.kind = tuple(shares), kind

    def embed(self, pixels: torch.Tensor) -> torch.Tensor:
        """The features of all of them, side by side."""
        return torch.cat([cast(HeadAnswers, model).embed(pixels) for model in self.models], dim=1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor | None = None
        for model, share in zip(self.models, self.shares, strict=True):
            outputs = model(pixels)
            part = share.weight * as_probabilities(self.kind, outputs, share.temperature)
            total = part if total is None else total + part
        assert total is not None, "a blend has models"
        if self.kind == MULTI_LABEL:
            return total.clamp(min=_TINY).log() - (1 - total).clamp(min=_TINY).log()
        return total.clamp(min=_TINY).log() if self.kind == "classification" else total


def as_probabilities(kind: str, outputs: torch.Tensor, temperature: float) -> torch.Tensor:
    """Of classes, or of each of several labels; values as they are."""
    if kind == "regression":
        return outputs
    return (outputs / temperature).sigmoid() if kind == MULTI_LABEL else (outputs / temperature).softmax(dim=1)


class PhotoModel(PortableModel):
    """The whole way. Out come calibrated ``probabilities`` of classes or of each of several labels, or ``values`` in the
    targets' own units.
    """

    free_sides = ("n", "height", "width")

    def __init__(self, answers: nn.Module, *, kind: str, temperature: float) -> None:
        super().__init__("values" if kind == "regression" else "probabilities")
        self.answers, self.kind, self.temperature = answers, kind, temperature
        self.eval().requires_grad_(False)

    def example(self) -> torch.Tensor:
        """Of sides that are no multiples of each other, so that no rule between them is taken for one of all pictures."""
        return torch.zeros((2, 301, 437, 3), dtype=torch.uint8)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return as_probabilities(self.kind, self.answers(pixels), self.temperature)
