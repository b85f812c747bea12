"""Where a network is cut: the part that stays frozen, and the part that trains.

In: an encoder and where to cut it: ``end`` (all of it is frozen), ``blocks`` (so it is, and maps inside it are pooled beside its
end), ``-k`` (the last k blocks train) or ``none`` (all of it trains). Out: a `Cut`: a prefix whose activations may be cached, and
a suffix that turns them into the encoder's pooled features.
In memory, prefix and suffix give the uncut network's features bit for bit; that is tried on one input before a cut is handed out.

timm's own fine grouping (`group_matcher(coarse=False)`) says what a block is and in which order they come. k counts blocks alone:

- vision transformers: one attention-and-MLP block each (12 in a ViT-S);
- EfficientNets: one inverted residual (or separable, or plain convolution) block each (16 in EfficientNet-B0 and lite0);
- ResNets: one basic or bottleneck block each, with the downsampling branch inside it (8 in ResNet-18);
- ConvNeXts: one block each; the downsampling between stages belongs to the first block after it.

What comes after the last block (final norm, the last convolution of an EfficientNet) always trains; what comes before the first
(stem, patch and position embedding) trains only with ``none``. Nothing here runs pictures or trains; engines and `train` do.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn

from unchoke.core.errors import UsageError
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.core.units import format_count
from unchoke.features.encoders import Encoder

END, BLOCKS, NONE = "end", "blocks", "none"
_NUM_STAGES = 3
"""Stages whose maps ``blocks`` pools: the last of a network that halves its maps, after each third of a transformer's blocks."""


@dataclass(frozen=True)
class Cut:
    """A network in two parts. `shape` is what one input becomes between them; `num_trained` of `num_blocks` blocks train.

    The prefix shares its weights with the encoder, is in evaluation mode and needs no gradients; None when nothing is frozen.
    The suffix has weights of its own, under the names they have in the whole network.
    """

    prefix: nn.Module | None
    suffix: nn.Module
    shape: tuple[int, ...]
    num_trained: int
    num_blocks: int
    name: str


@dataclass(frozen=True)
class _Family:
    """What lies before and after the blocks in one of timm's classes, and which modules make up the blocks (`unit`)."""

    title: str
    stem: tuple[str, ...]
    unit: str
    tail: tuple[str, ...]
    stem_methods: tuple[str, ...] = ()


_TOKENS = ("cls_token", "reg_token", "dist_token", "pos_embed")
_FAMILIES = {
    "VisionTransformer": _Family(
        "vision transformers",
        stem=("patch_embed", *_TOKENS, "pos_drop", "patch_drop", "norm_pre"),
        unit=r"blocks\.\d+",
        tail=("norm", "attn_pool", "fc_norm", "head_drop", "head"),
        stem_methods=("_pos_embed",),
    ),
    "EfficientNet": _Family(
        "EfficientNets",
        stem=("conv_stem", "bn1"),
        unit=r"blocks\.\d+\.\d+",
        tail=("conv_head", "bn2", "global_pool", "classifier"),
    ),
    "ResNet": _Family(
        "ResNets",
        stem=("conv1", "bn1", "act1", "maxpool"),
        unit=r"layer\d+\.\d+",
        tail=("global_pool", "fc"),
    ),
    "ConvNeXt": _Family(
        "ConvNeXts",
        stem=("stem",),
        unit=r"stages\.\d+\.(downsample|blocks\.\d+)",
        tail=("norm_pre", "head"),
    ),
}


class _Prefix(nn.Module):
    """A network without its tail, run up to where the tail would begin."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images_nchw: torch.Tensor) -> torch.Tensor:
        activations: torch.Tensor = self.network.forward_features(images_nchw)  # type: ignore[operator]
        return activations


def check_cut(text: str) -> str:
    """``end``, ``blocks``, ``none`` or ``-k``, tidied; all else is refused. Whether there are k blocks, `cut_network` knows."""
    tidy = text.strip().lower().replace("−", "-")
    if tidy in (END, BLOCKS, NONE):
        return tidy
    match = re.fullmatch(r"-0*([1-9][0-9]*)", tidy)
    if match is None:
        raise UsageError(
            f"--cut {text} is not a place to cut a network",
            code="bad-cut",
            why="it is end or blocks (all frozen), none (all of it trains) or minus the number of blocks that train",
            try_=f"--cut -{tidy}" if re.fullmatch("[1-9][0-9]*", tidy) else "--cut -4",
        )
    return f"-{match[1]}"


def cut_network(encoder: Encoder, cut: str, *, verify: bool = True) -> Cut:
    """Cut `encoder`; with `verify`, refuse a cut that changes its numbers."""
    module, spec, name = encoder.module, encoder.spec, check_cut(cut)
    if name == BLOCKS and not has_stages(module):  # then its end is all there is
        name = END
    num_blocks = count_blocks(module)
    if name == END:
        return Cut(module, nn.Identity(), (spec.dim,), 0, num_blocks, name)
    if name == NONE:
        whole = copy.deepcopy(module).requires_grad_(True)
        return Cut(None, whole, (3, spec.preprocess.size_px, spec.preprocess.size_px), num_blocks, num_blocks, name)
    example = torch.randn(1, 3, spec.preprocess.size_px, spec.preprocess.size_px, generator=torch.Generator().manual_seed(0))
    example = example.to(next(module.parameters()).device)
    if name == BLOCKS:  # all of it frozen, with pools of several blocks beside its own features, which stay what they are
        pools = pool_blocks(module, example)
        with torch.inference_mode():
            row = pools(example)[0]
            if verify and not torch.equal(row[: spec.dim], module(example)[0]):
                raise _changed_numbers(encoder, name, "run stage by stage it does")
        return Cut(pools, nn.Identity(), (len(row),), 0, num_blocks, name)
    prefix, suffix = _cut_at_block(encoder, -int(name))
    with torch.inference_mode():
        activations = prefix(example)
        if verify and not torch.equal(suffix(activations), module(example)):
            raise _changed_numbers(encoder, name, "its two parts do")
    return Cut(prefix, suffix, tuple(activations.shape[1:]), -int(name), num_blocks, name)


def _changed_numbers(encoder: Encoder, cut: str, what: str) -> UsageError:
    return UsageError(
        f"{encoder.spec.name} cannot be cut at {cut}",
        code="cut-changes-numbers",
        why=f"{what} not give the numbers of the whole {type(encoder.module).__name__} network",
        try_="--cut end or --cut none",
    )


def is_all_frozen(cut: str) -> bool:
    """Whether nothing of the network trains, so that what is kept of a picture is a plain vector."""
    return cut in (END, BLOCKS)


def pooled_dim(encoder: Encoder, cut: str) -> int:
    """The width of what heads and fusions are given: the network's own, or with ``blocks`` that of all pools."""
    return cut_network(encoder, BLOCKS, verify=False).shape[0] if cut == BLOCKS else encoder.spec.dim


def frozen_part(encoder: Encoder, cut: Cut) -> Encoder:
    """What engines run: the encoder up to the cut."""
    if cut.prefix is None:
        raise ValueError("with --cut none no part of the network is frozen")
    return Encoder(cut.prefix, encoder.spec, cut.name)


def layer_numbers(module: nn.Module) -> dict[str, int]:
    """Parameter name → number of its layer, counted from the input, as timm groups them (for layer-wise learning rates)."""
    if not hasattr(module, "group_matcher"):
        return {name: 0 for name, _ in module.named_parameters()}
    prepare_torchvision()
    from timm.models import group_parameters

    matcher: Any = module.group_matcher
    found: dict[str, int] = group_parameters(module, matcher(coarse=False), reverse=True)
    return found


def set_batch_norm_eval(module: nn.Module) -> int:
    """Put every batch norm below `module` into evaluation mode (statistics stay as they are); how many there are."""
    found = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    for layer in found:
        layer.eval()
    return len(found)


def _cut_at_block(encoder: Encoder, num_trained: int) -> tuple[nn.Module, nn.Module]:
    module = encoder.module
    family = _family_of(module)
    if family is None:
        titles = [one.title for one in _FAMILIES.values()]
        raise UsageError(
            f"{encoder.spec.name} cannot be cut at a block",
            code="cut-unsupported",
            why=f"{', '.join(titles[:-1])} and {titles[-1]} can; this is timm's {type(module).__name__}",
            try_="--cut end or --cut none",
        )
    blocks = _blocks(module, family)
    if num_trained > len(blocks):
        raise UsageError(
            f"--cut -{num_trained} asks for more blocks than {encoder.spec.name} has",
            code="cut-too-deep",
            why=f"it has {format_count(len(blocks), 'block')}",
            try_=f"--cut -{max(1, len(blocks) // 4)}, or --cut none to train all of it",
        )
    first = len(blocks) - num_trained
    prefix = _Prefix(_without(module, [*chain(*blocks[first:]), *family.tail])).eval().requires_grad_(False)
    network = _without(module, [*chain(*blocks[:first]), *family.stem])
    for method in family.stem_methods:
        setattr(network, method, _unchanged)
    return prefix, copy.deepcopy(network).eval().requires_grad_(True)


def _family_of(module: nn.Module) -> _Family | None:
    ours = (kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("timm.models."))
    return next((_FAMILIES[name] for name in ours if name in _FAMILIES), None)


def count_blocks(module: nn.Module) -> int:
    """How many blocks a whole network has; 0 where it can only be cut at its end, or not at all."""
    family = _family_of(module)
    return len(_blocks(module, family)) if family else 0


def _blocks(module: nn.Module, family: _Family) -> list[list[str]]:
    """The paths of each block's modules, block by block from the input: one entry for each of timm's groups that has any."""
    numbers = layer_numbers(module)
    paths: dict[int, list[str]] = {}
    for path, unit in module.named_modules():
        first = next((f"{path}.{name}" for name, _ in unit.named_parameters()), None)
        if first is not None and re.fullmatch(family.unit, path):
            paths.setdefault(numbers[first], []).append(path)
    return [paths[number] for number in sorted(paths)]


def _without(module: nn.Module, paths: Iterable[str]) -> nn.Module:
    """A copy of `module` that lacks what `paths` name. Its tensors are those of `module`, not copies."""
    tensors = {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
    reduced = copy.deepcopy(module, dict(tensors))
    for path in paths:
        _remove(reduced, path)
    return reduced


def _remove(module: nn.Module, path: str) -> None:
    """Take out a block of a sequence, put nothing in the place of any other module, None in that of a parameter."""
    holder, _, name = path.rpartition(".")
    parent = module.get_submodule(holder)
    if isinstance(parent, nn.Sequential):
        del parent._modules[name]
    elif parent._modules.get(name) is not None:
        setattr(parent, name, nn.Identity())
    elif name in parent._parameters:
        setattr(parent, name, None)


def _unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


class BlockPools(nn.Module):
    """The end's features, then each stage's mean and deviation. A mean that the end repeats (a ResNet's last) is left out.

    It shares its weights with `network`, which stays as it is.
    """

    def __init__(self, network: nn.Module, stages: Sequence[int], *, last_is_end: bool) -> None:
        super().__init__()
        self.network = network
        self.stages = list(stages)
        self.last_is_end = last_is_end

    def forward(self, images_nchw: torch.Tensor) -> torch.Tensor:
        end, maps = run_stages(self.network, images_nchw, self.stages)
        parts = [end.float()]
        for stage, map_nchw in zip(self.stages, maps, strict=True):
            mean, deviation = pool(map_nchw)
            parts += [deviation] if self.last_is_end and stage == self.stages[-1] else [mean, deviation]
        return torch.cat(parts, dim=1)


def pool_blocks(network: nn.Module, example_nchw: torch.Tensor) -> BlockPools:
    """The pools of `network`; `example_nchw` shows whether its end is the mean of its last stage."""
    stages = _stages(network)
    with torch.inference_mode():
        end, maps = run_stages(network, example_nchw, stages)
    mean = pool(maps[-1])[0]
    same = mean.shape == end.shape and bool(torch.allclose(mean, end.float(), atol=1e-5, rtol=1e-4))
    return BlockPools(network, stages, last_is_end=same).eval().requires_grad_(False)


def run_stages(network: Any, images_nchw: torch.Tensor, stages: Sequence[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The network's own features, and its maps after `stages`, in one pass."""
    last, maps = network.forward_intermediates(images_nchw, indices=list(stages), output_fmt="NCHW")
    return network.forward_head(last), list(maps)


def pool(map_nchw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of each channel, over all places."""
    values = map_nchw.float()
    mean = values.mean(dim=(2, 3), keepdim=True)
    return mean.flatten(1), (values - mean).square().mean(dim=(2, 3)).sqrt()


def has_stages(network: nn.Module) -> bool:
    """Whether timm hands out the maps inside this network."""
    return all(hasattr(network, name) for name in ("forward_intermediates", "forward_head", "feature_info"))


def _stages(network: Any) -> list[int]:
    """Numbers of stages, as timm counts them for this network."""
    strides = [stage["reduction"] for stage in network.feature_info]
    num = len(strides)
    if len(set(strides)) == 1:
        return sorted({max(0, round(num * (third + 1) / _NUM_STAGES) - 1) for third in range(_NUM_STAGES)})
    return list(range(max(0, num - _NUM_STAGES), num))
