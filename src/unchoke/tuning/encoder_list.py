"""`unchoke encoders list`: a few networks worth trying, from small to large, and whether their weights are on this machine.

Any other timm name works as well. Accuracy is what the authors of each network report on ImageNet, by their own protocol.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from unchoke.features.weights_identity import is_installed, weights_package
from unchoke.runs.report.layout import columns


@dataclass(frozen=True)
class CuratedEncoder:
    name: str
    million_weights: float
    input_px: int
    licence: str
    reported: str
    repository: str = ""
    """Where the weights are on the model hub; "" for those that come as a package."""


ENCODERS = (
    CuratedEncoder("tf_efficientnet_lite0", 4.7, 224, "Apache-2.0", "75.1 % top-1"),
    CuratedEncoder("tf_efficientnet_lite2", 6.1, 260, "Apache-2.0", "77.6 % top-1"),
    CuratedEncoder("tiny_vit_5m_224", 5.4, 224, "Apache-2.0", "80.7 % fine-tuned", "timm/tiny_vit_5m_224.dist_in22k"),
    CuratedEncoder("tiny_vit_21m_224", 21.2, 224, "Apache-2.0", "84.8 % fine-tuned", "timm/tiny_vit_21m_224.dist_in22k"),
    CuratedEncoder("convnext_tiny", 28.6, 224, "Apache-2.0", "84.2 % top-1", "timm/convnext_tiny.in12k_ft_in1k"),
    CuratedEncoder("vit_small_patch14_dinov2", 22.1, 518, "Apache-2.0", "81.1 % linear", "timm/vit_small_patch14_dinov2.lvd142m"),
    CuratedEncoder("vit_base_patch14_dinov2", 86.6, 518, "Apache-2.0", "84.5 % linear", "timm/vit_base_patch14_dinov2.lvd142m"),
    CuratedEncoder(
        "vit_base_patch16_siglip_224", 92.9, 224, "Apache-2.0", "78.2 % zero-shot", "timm/vit_base_patch16_siglip_224.v2_webli"
    ),
)


@dataclass(frozen=True)
class EncoderList:
    """The networks, and which of them need no download."""

    encoders: tuple[CuratedEncoder, ...] = ENCODERS
    """The curated networks, smallest first."""

    def to_dict(self) -> dict[str, Any]:
        return {"encoders": [{**asdict(one), "at_hand": is_at_hand(one)} for one in self.encoders]}

    def to_text(self) -> str:
        rows = [
            (
                one.name,
                f"{4 * one.million_weights:.0f} MB",
                f"{one.input_px} px",
                one.licence,
                one.reported,
                "here" if is_at_hand(one) else "hub" if one.repository else "package",
            )
            for one in self.encoders
        ]
        header = ("encoder", "weights", "input", "licence", "on ImageNet", "from")
        advice = "next    unchoke encoders PHOTOS --encoders tf_efficientnet_lite0,tiny_vit_5m_224, which compares them on yours"
        return f"{columns(rows, header=header, right=(1, 2))}\n\n{advice}"


def list_encoders() -> EncoderList:
    """A few networks worth trying as `--encoder`, from small to large.

    Returns:
        The networks, with licence, size and source.

    Example:
        >>> unchoke.list_encoders().encoders[0].name
        'tf_efficientnet_lite0'
    """
    return EncoderList()


def is_at_hand(encoder: CuratedEncoder) -> bool:
    """Whether the weights are installed or in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    if package := weights_package(encoder.name):
        return is_installed(package)
    return isinstance(try_to_load_from_cache(encoder.repository, "model.safetensors"), str)
