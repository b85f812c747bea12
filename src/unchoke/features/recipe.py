"""How a picture becomes features, as one value. Its fingerprint names the cache: features made another way are never mixed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unchoke.features.encoders import EncoderSpec
from unchoke.fingerprint import digest
from unchoke.views.augment import RECIPE as VIEW_RECIPE
from unchoke.workspace import safe_name

DECODING = "libjpeg-turbo or Pillow, upright RGB, halved while it covers twice the input, antialiased uint8 resize; version 1"


@dataclass(frozen=True)
class Recipe:
    """Everything the numbers depend on: encoder and weights, decoding, views, cut, engine and precision."""

    encoder: EncoderSpec
    engine: str
    precision: str
    num_augmented: int = 0
    cut: str = "end"

    @property
    def fingerprint(self) -> str:
        return digest(self.to_dict())

    @property
    def folder(self) -> str:
        """The folder of its shards below `features/`."""
        return f"encoder_{safe_name(self.encoder.name)}-{self.fingerprint[:8]}"

    @property
    def output_pattern(self) -> str:
        return self.folder.replace("{", "_").replace("}", "_") + "/img_{first:06d}-{last:06d}.npz"

    def to_dict(self) -> dict[str, Any]:
        encoder = self.encoder.to_dict()
        del encoder["weights_from"]  # the same weights from another place are the same weights
        views = {"augmented": self.num_augmented, "how": VIEW_RECIPE if self.num_augmented else ""}
        return {
            "encoder": encoder,
            "decoding": DECODING,
            "views": views,
            "cut": self.cut,
            "engine": self.engine,
            "precision": self.precision,
        }
