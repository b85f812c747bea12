"""How a picture becomes features, as one value. Its fingerprint names the cache: features made another way are never mixed in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from unchoke.core.fingerprint import digest
from unchoke.core.workspace import safe_name
from unchoke.features.encoders import EncoderSpec
from unchoke.photos.pixels.augment import RECIPE as VIEW_RECIPE
from unchoke.photos.pixels.tile_grid import TilePlan

DECODING = "libjpeg-turbo or Pillow, upright RGB, halved while it covers twice the input, antialiased uint8 resize; version 1"
TWICE, FULL = "2", "full"
"""How small a JPEG may be decoded: while it still covers so many times the side needed, or not at all."""
_WHOLE = TilePlan()
TILING = "tiles resized whole; views of a photo keep its proportions within 3:4 and 4:3, then are tiled; version 1"


@dataclass(frozen=True)
class Recipe:
    """Everything the numbers depend on: encoder and weights, decoding, views, tiles, cut, engine and precision.

    `shape` is what one input becomes at the cut (`Cut.shape`); at the end that is the encoder's width, and need not be said.
    """

    encoder: EncoderSpec
    engine: str
    precision: str
    num_augmented: int = 0
    cut: str = "end"
    tiles: TilePlan = _WHOLE
    shape: tuple[int, ...] | None = None
    decode_scale: str = TWICE

    @property
    def cover(self) -> float | None:
        """How many times the side needed a picture must keep when it is decoded smaller; None where it never is."""
        return None if self.decode_scale == FULL else float(self.decode_scale)

    @property
    def is_plain(self) -> bool:
        """Whether a picture becomes one vector: the whole network, and the whole picture."""
        return self.cut == "end" and self.tiles.is_whole

    @property
    def input_shape(self) -> tuple[int, ...]:
        """What one input of the network becomes."""
        if self.shape is None and self.cut != "end":
            raise ValueError(f"a recipe for --cut {self.cut} needs the shape of its activations")
        return self.shape or (self.encoder.dim,)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """What one view of a picture becomes: a plain vector, or (tiles, …) of whatever the cut gives."""
        return self.input_shape if self.is_plain else (self.tiles.num_tiles, *self.input_shape)

    @property
    def num_inputs(self) -> int:
        """How often the network runs for one picture: every tile of every view."""
        return (1 + self.num_augmented) * self.tiles.num_tiles

    @property
    def picture_bytes(self) -> int:
        """What one picture takes in the cache, all its views together, as float16."""
        return 2 * self.num_inputs * math.prod(self.input_shape)

    @property
    def network(self) -> str:
        """The network in words: ``tf_efficientnet_lite0 cut at -4``."""
        return self.encoder.name if self.cut == "end" else f"{self.encoder.name} cut at {self.cut}"

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
        tiles = {} if self.tiles.is_whole else {"tiles": {**self.tiles.to_dict(), "how": TILING}}
        scale = {} if self.decode_scale == TWICE else {"decode_scale": self.decode_scale}
        return {
            **tiles,
            **scale,
            "encoder": encoder,
            "decoding": DECODING,
            "views": views,
            "cut": self.cut,
            "engine": self.engine,
            "precision": self.precision,
        }
