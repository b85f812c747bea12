"""What else than training through a network takes memory, operation by operation: extraction, heads, and both parts of masks.

In: the settings of `unchoke budget`, a device and its limit. Out: one `OperationBudget` each, counted and not measured: networks
of shapes alone go through one pass (`estimate_memory.py`), so no weights are needed and it takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from unchoke.core.errors import UnchokeError
from unchoke.core.settings import Settings
from unchoke.core.units import format_bytes, format_count

if TYPE_CHECKING:
    import torch
    from torch import nn

_CLASSES, _BANDS, _PATCH_PX, _STRIDES = 10, 4, 256, (4, 8, 16, 32)
_PICTURES, _VECTORS, _PATCHES = 16, 256, 8
"""How many at once an operation is counted for."""


@dataclass(frozen=True)
class OperationBudget:
    """What one operation takes at most with `batch` samples at once, and how many stay below the limit; why not, where not."""

    operation: str
    about: str
    batch: int = 0
    peak_bytes: int = 0
    fits: int = 0
    why_not: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def text(self) -> str:
        """``at most 1.2 GB for 16 samples at once (16 × 224 px through …); up to 60 fit``."""
        if self.why_not:
            return f"not counted: {self.why_not}"
        fits = f"up to {self.fits:,} fit" if self.fits else "not even one fits"
        return f"at most {format_bytes(self.peak_bytes)} for {format_count(self.batch, 'sample')} at once, {fits}; {self.about}"


def count_operations(settings: Settings, device: torch.device, limit_bytes: int) -> list[OperationBudget]:
    """Every operation beside training through a network; masks of a network that has no pyramid say why not."""
    from torch import nn

    from unchoke.features.encoders import bare_encoder
    from unchoke.training.network.estimate_memory import count_pass

    def count(name: str, about: str, network: nn.Module, shape: tuple[int, ...], batch: int, training: bool) -> OperationBudget:
        fixed, spent = count_pass(network, shape, batch=batch, device=device, training=training)
        fits = max(0, (limit_bytes - fixed) * batch // max(1, spent))
        return OperationBudget(name, about, batch, fixed + spent, fits)

    encoder = bare_encoder(settings.encoder, input_px=settings.input_px)
    side, dim = encoder.spec.preprocess.size_px, encoder.spec.dim
    head = nn.Sequential(nn.Linear(dim, dim // 2 or 1), nn.GELU(), nn.Linear(dim // 2 or 1, _CLASSES))
    about = f"the whole network, frozen, in float32 at {side} px", f"one mlp of {_CLASSES} classes on {dim} cached features"
    found = [
        count("extraction", about[0], encoder.module, (3, side, side), _PICTURES, False),
        count("heads", about[1], head, (dim,), _VECTORS, True),
    ]
    try:
        for name, words, network, shape, training in _mask_networks(settings, device):
            found.append(count(name, words, network, shape, _PATCHES, training))
    except (UnchokeError, ImportError) as error:
        names = ("mask features", "mask decoder")
        found += [OperationBudget(name, "", why_not=getattr(error, "what", str(error))) for name in names]
    return found


def _mask_networks(settings: Settings, device: torch.device) -> Iterator[tuple[str, str, nn.Module, tuple[int, ...], bool]]:
    """The pyramid of patches, and a decoder on it."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from unchoke.features.pyramid import PyramidSpec, bare_pyramid
    from unchoke.masks.segmenter import Segmenter, SegmenterConfig

    spec = PyramidSpec(settings.encoder, "", _BANDS, _PATCH_PX, _STRIDES, ())
    shape = (_BANDS, _PATCH_PX, _PATCH_PX)
    frozen = bare_pyramid(spec).requires_grad_(False)
    yield "mask features", f"the pyramid of {_PATCH_PX} px patches of {_BANDS} bands", frozen, shape, False
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
        channels = tuple(int(level.shape[1]) for level in frozen(torch.empty((1, *shape), device=device)))
    known = PyramidSpec(settings.encoder, "", _BANDS, _PATCH_PX, _STRIDES, channels)
    decoder = Segmenter(SegmenterConfig(known, _CLASSES, decoder="fpn", bands=True, scores=True))
    yield "mask decoder", f"an fpn on that pyramid, {_CLASSES} classes", decoder, (decoder.config.row_length,), True
