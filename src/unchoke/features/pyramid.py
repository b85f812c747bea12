"""The encoder's maps at several strides: built from any timm network, for any number of bands.

In: a timm name, weights, how many bands and how large the patches. Out: a `Pyramid`: the network without its end, in evaluation
mode, and a `PyramidSpec` that says exactly what it gives. An engine makes one long row of each patch: all levels flattened, the
finest first. Reading patches and keeping rows is done elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from unchoke.core.errors import UsageError, list_some
from unchoke.core.fingerprint import digest
from unchoke.core.tensors import first_line
from unchoke.features.encoders import StateDict, load_encoder, timm_config

_USUAL_PX = 224
"""The side of the photos that usual batches are meant for."""


@dataclass(frozen=True)
class PyramidSpec:
    """What a pyramid is, as plain values: enough to build it again and to tell its maps from any other's."""

    encoder: str
    weights_sha256: str
    num_bands: int
    patch_px: int
    strides: tuple[int, ...]
    channels: tuple[int, ...]

    @property
    def shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(channels, height, width) of each level, the finest first."""
        sides = [self.patch_px // stride for stride in self.strides]
        return tuple((channels, side, side) for channels, side in zip(self.channels, sides, strict=True))

    @property
    def levels(self) -> dict[str, tuple[int, int, int]]:
        """The same by the names the levels have on disk: ``stride_4``, ``stride_8``, …"""
        return {f"stride_{stride}": shape for stride, shape in zip(self.strides, self.shapes, strict=True)}

    @property
    def row_length(self) -> int:
        """Values of a whole pyramid, flattened."""
        return sum(math.prod(shape) for shape in self.shapes)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "strides": list(self.strides), "channels": list(self.channels)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> PyramidSpec:
        return cls(**{**value, "strides": tuple(value["strides"]), "channels": tuple(value["channels"])})


class Pyramid(NamedTuple):
    """A network that gives maps, and what they are. Called with (n, bands, px, px), `module` gives a list, the finest first."""

    module: nn.Module
    spec: PyramidSpec

    @property
    def input_dtype(self) -> type[np.generic]:
        return np.float32

    @property
    def title(self) -> str:
        return f"the pyramid of {self.spec.encoder}"

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.spec.num_bands, self.spec.patch_px, self.spec.patch_px

    def runnable(self) -> nn.Module:
        return FlatPyramid(self.module)

    def model_name(self, calibration: str) -> str:
        return f"openvino-pyramid-{digest([self.spec.to_dict(), calibration] if calibration else self.spec.to_dict())[:16]}"

    def choice_key(self, wishes: Sequence[str | None]) -> str:
        return digest([self.spec.to_dict(), *wishes])

    def fitting_batch(self, usual: int) -> int:
        """As many patches as have about the pixels of the usual batch of photos; never more of them than that."""
        return max(1, min(usual, usual * _USUAL_PX**2 // self.spec.patch_px**2))


class FlatPyramid(nn.Module):
    """A pyramid with one output: all levels flattened, side by side."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, patches_nchw: torch.Tensor) -> torch.Tensor:
        return torch.cat([level.flatten(1) for level in self.module(patches_nchw.float())], dim=1)


def load_pyramid(name: str, *, weights: Path | None = None, num_bands: int, patch_px: int, strides: tuple[int, ...]) -> Pyramid:
    """The pretrained pyramid of `name`, frozen.

    The first convolution is fitted to the number of bands as timm does it: its filters are repeated over the bands and scaled.
    """
    fixed_px = patch_px if timm_config(name).fixed_input_size else None
    encoder = load_encoder(name, weights=weights, input_px=fixed_px)
    module, channels = _build(name, num_bands=num_bands, patch_px=patch_px, strides=strides)
    spec = PyramidSpec(name, encoder.spec.weights_sha256, num_bands, patch_px, strides, channels)
    _fill(module, encoder.module.state_dict(), name)
    module.eval().requires_grad_(False)
    _refuse_other_shapes(module, spec)
    return Pyramid(module, spec)


def bare_pyramid(spec: PyramidSpec) -> nn.Module:
    """The structure of a pyramid, its weights left to chance, trainable: for those who have all the weights themselves."""
    return _build(spec.encoder, num_bands=spec.num_bands, patch_px=spec.patch_px, strides=spec.strides)[0]


def _build(name: str, *, num_bands: int, patch_px: int, strides: tuple[int, ...]) -> tuple[nn.Module, tuple[int, ...]]:
    """The network up to the coarsest level that is wanted, and the channels of each level."""
    fixed = bool(timm_config(name).fixed_input_size)
    import timm

    options: dict[str, Any] = {"features_only": True, "in_chans": num_bands, **({"img_size": patch_px} if fixed else {})}
    _refuse_odd_patch(patch_px, strides)
    try:
        with torch.device("meta"):
            sketch = timm.create_model(name, **options)
    except (RuntimeError, AttributeError, AssertionError, ValueError, TypeError) as error:
        raise _no_pyramid(name, first_line(error)) from error
    reductions = [int(reduction) for reduction in sketch.feature_info.reduction()]
    _refuse_unknown_strides(name, strides, reductions)
    levels = [len(reductions) - 1 - reductions[::-1].index(stride) for stride in strides]
    levels = [int(sketch.feature_info.out_indices[level]) for level in levels]
    module: nn.Module = timm.create_model(name, **options, out_indices=tuple(levels))
    channels = tuple(int(number) for number in module.feature_info.channels())  # type: ignore[union-attr, operator]
    return module, channels


def _refuse_odd_patch(patch_px: int, strides: tuple[int, ...]) -> None:
    if patch_px % max(strides):
        near = max(1, math.ceil(patch_px / max(strides))) * max(strides)
        raise UsageError(
            f"patches of {patch_px} pixels do not fit a stride of {max(strides)}",
            code="bad-patch-size",
            why="every level must cover the patch exactly",
            try_=f"--patch-size {near}",
        )


def _refuse_unknown_strides(name: str, strides: tuple[int, ...], known: list[int]) -> None:
    if missing := [str(stride) for stride in strides if stride not in known]:
        has = [str(stride) for stride in dict.fromkeys(known)]
        raise UsageError(
            f"{name} has no maps at stride {' or '.join(missing)}",
            code="bad-strides",
            why=f"it has them at {', '.join(has)}",
            try_=f"--strides {','.join(has)}, or --encoder tf_efficientnet_lite0, which has 2,4,8,16,32",
        )


def _no_pyramid(name: str, why: str) -> UsageError:
    return UsageError(
        f"{name} gives no maps at several strides",
        code="no-pyramid",
        why=why,
        try_="--encoder tf_efficientnet_lite0, or another convolutional network",
    )


def _fill(module: nn.Module, state: StateDict, name: str) -> None:
    """Put the whole network's weights into the part that is kept; timm spells some names with `_` where the network has a dot."""
    from timm.models._manipulate import adapt_input_conv

    known = {_spelling(key): value for key, value in state.items()}
    config = timm_config(name)
    first = config.first_conv if isinstance(config.first_conv, tuple | list) else (config.first_conv,)
    first_weights = {_spelling(f"{layer}.weight") for layer in first if layer}
    wanted = module.state_dict()
    filled: StateDict = {}
    for key, value in wanted.items():
        spelling = _spelling(key)
        found = known.get(spelling)
        if found is not None and spelling in first_weights and found.shape != value.shape:
            found = adapt_input_conv(value.shape[1], found)
        if found is not None and found.shape == value.shape:
            filled[key] = found
    if misfits := [key for key in wanted if key not in filled]:
        raise _no_pyramid(name, f"{len(misfits)} tensors of its maps are not in the network: {list_some(misfits, limit=3)}")
    module.load_state_dict(filled)


def _spelling(key: str) -> str:
    return key.removeprefix("model.").replace(".", "_")


def _refuse_other_shapes(module: nn.Module, spec: PyramidSpec) -> None:
    """Some networks put channels last, or round sides in their own way: what a decoder cannot take is refused here."""
    with torch.inference_mode():
        maps = module(torch.zeros(1, spec.num_bands, spec.patch_px, spec.patch_px))
    found = [tuple(level.shape[1:]) for level in maps]
    if found != list(spec.shapes):
        raise _no_pyramid(spec.encoder, f"its maps of {spec.patch_px} pixels are {found}, not {list(spec.shapes)}")
