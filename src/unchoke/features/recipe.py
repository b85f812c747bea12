"""How an item becomes features, as one value. Its fingerprint names the cache: features made another way are never mixed in.

`PictureRecipe` is the one of photos, `PatchRecipe` the one of patches of scenes. Extraction knows what they have in common.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from unchoke.core.fingerprint import digest
from unchoke.core.workspace import safe_name
from unchoke.features.cut import is_all_frozen
from unchoke.features.encoders import EncoderSpec
from unchoke.features.feature_store import ACTIVATIONS, POOLED, Levels
from unchoke.features.pyramid import PyramidSpec
from unchoke.pixels.tile_grid import RECIPE as VIEW_RECIPE
from unchoke.pixels.tile_grid import TilePlan

DECODING = "libjpeg-turbo or Pillow, upright RGB, halved while it covers twice the input, antialiased uint8 resize; version 1"
TWICE, FULL, CARD = "2", "full", "card"
"""How small a JPEG may be decoded: while it still covers so many times the side needed, or not at all; on a card never."""
_WHOLE = TilePlan()
TILING = "tiles resized whole; views of a photo keep its proportions within 3:4 and 4:3, then are tiled; version 1"
TURNING = "turned and mirrored; version 1"


class FeatureRecipe(ABC):
    """What extraction asks of a recipe, for photos and patches alike."""

    item: ClassVar[str]
    items: ClassVar[str]
    """What is extracted, one and several of them, in words."""
    smaller: ClassVar[str]
    """The options that make the cache smaller."""
    num_augmented: int

    @property
    @abstractmethod
    def encoder_name(self) -> str: ...

    @property
    @abstractmethod
    def network(self) -> str:
        """The network in words."""

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """What one input of the network becomes."""

    @property
    @abstractmethod
    def row_in_words(self) -> str:
        """What is kept of an item, all its views together."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything the numbers depend on."""

    @property
    def is_plain(self) -> bool:
        """Whether an item becomes one vector, too small to speak of."""
        return False

    @property
    def num_tiles(self) -> int:
        """How many inputs of the network one view is."""
        return 1

    @property
    def row_shape(self) -> tuple[int, ...]:
        """What one view of an item becomes."""
        return self.input_shape

    @property
    def levels(self) -> Levels:
        """The arrays a row is kept as, where it is more than one."""
        return {}

    @property
    def num_views(self) -> int:
        return 1 + self.num_augmented

    @property
    def num_inputs(self) -> int:
        """How often the network runs for one item: every tile of every view."""
        return self.num_views * self.num_tiles

    @property
    def item_bytes(self) -> int:
        """What one item takes in the cache, all its views together, as float16."""
        return 2 * self.num_inputs * math.prod(self.input_shape)

    @property
    def member(self) -> str:
        """The array in a shard that holds the plain views."""
        return POOLED if self.is_plain else ACTIVATIONS

    @property
    def fingerprint(self) -> str:
        return digest(self.to_dict())

    @property
    def folder(self) -> str:
        """The folder of its shards below `features/`."""
        return f"encoder_{safe_name(self.encoder_name)}-{self.fingerprint[:8]}"

    @property
    def output_pattern(self) -> str:
        return self.folder.replace("{", "_").replace("}", "_") + "/img_{first:06d}-{last:06d}.npz"


@dataclass(frozen=True)
class PictureRecipe(FeatureRecipe):
    """How a photo is shown: encoder and weights, decoding, views, tiles, cut, engine and precision.

    `shape` is what one input becomes at the cut (`Cut.shape`); at the end that is the encoder's width, and need not be said.
    """

    item, items = "image", "images"
    smaller = "fewer --views or tiles, --cut end"

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
        return None if self.decode_scale in (FULL, CARD) else float(self.decode_scale)

    @property
    def picture_shape(self) -> tuple[int, int, int]:
        """One input of the network: height, width, RGB."""
        return self.encoder.preprocess.size_px, self.encoder.preprocess.size_px, 3

    @property
    def encoder_name(self) -> str:
        return self.encoder.name

    @property
    def is_plain(self) -> bool:
        """Whether a picture becomes one vector: the whole network, and the whole picture."""
        return is_all_frozen(self.cut) and self.tiles.is_whole

    @property
    def num_tiles(self) -> int:
        return self.tiles.num_tiles

    @property
    def input_shape(self) -> tuple[int, ...]:
        if self.shape is None and self.cut != "end":
            raise ValueError(f"a recipe for --cut {self.cut} needs the shape of its activations")
        return self.shape or (self.encoder.dim,)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """What one view of a picture becomes: a plain vector, or (tiles, …) of whatever the cut gives."""
        return self.input_shape if self.is_plain else (self.num_tiles, *self.input_shape)

    @property
    def network(self) -> str:
        """``tf_efficientnet_lite0 cut at -4``"""
        pooled = {"end": "", "blocks": " pooled after several blocks"}
        return self.encoder.name + pooled.get(self.cut, f" cut at {self.cut}")

    @property
    def row_in_words(self) -> str:
        """``192×7×7 float16 numbers from tf_efficientnet_lite0 cut at -4, for 8 tiles in 3 views``"""
        numbers = "×".join(map(str, self.input_shape))
        tiles = "" if self.tiles.is_whole else f", for {self.num_tiles} tiles"
        views = f"{' in' if tiles else ', for'} {self.num_views} views" if self.num_augmented else ""
        return f"{numbers} float16 numbers from {self.network}{tiles}{views}"

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


@dataclass(frozen=True)
class PatchRecipe(FeatureRecipe):
    """How a patch is shown: the pyramid, how its bands are read and standardised, views, engine and precision.

    What differs from scene to scene (files, grid, scale) is in each patch's content instead.
    """

    item, items = "patch", "patches"
    smaller = "coarser --strides 8,16,32, fewer --views"

    pyramid: PyramidSpec
    reading: str
    bands: tuple[str, ...]
    standard: Mapping[str, Any]
    engine: str
    precision: str
    num_augmented: int = 0

    @property
    def encoder_name(self) -> str:
        return self.pyramid.encoder

    @property
    def network(self) -> str:
        return self.pyramid.encoder

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.pyramid.row_length,)

    @property
    def levels(self) -> Levels:
        return self.pyramid.levels

    @property
    def row_in_words(self) -> str:
        levels = ", ".join("×".join(map(str, shape)) for shape in self.pyramid.shapes)
        views = f", in {self.num_views} views" if self.num_augmented else ""
        return f"float16 maps of {self.pyramid.encoder}: {levels}{views}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "pyramid": self.pyramid.to_dict(),
            "reading": self.reading,
            "bands": list(self.bands),
            "standard": dict(self.standard),
            "views": {"augmented": self.num_augmented, "how": TURNING if self.num_augmented else ""},
            "engine": self.engine,
            "precision": self.precision,
        }
