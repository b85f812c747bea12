"""What tests of several rooms need: small trees of files, patches made of numbers, and a real pyramid of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

if TYPE_CHECKING:
    from unchoke.features.pyramid import Pyramid

SIDE = 64


class FakePatches:
    """Patches whose first band is high where their mask says 1; two rows of each mask say nothing."""

    num_views = 1

    def __init__(self, pyramid: Pyramid, weights: Path, num: int) -> None:
        random = np.random.default_rng(0)
        self.weights = weights
        self._module, self.spec = pyramid
        self._pixels = random.standard_normal((num, 4, SIDE, SIDE), np.float32).astype(np.float16)
        self._masks = np.zeros((num, SIDE, SIDE), np.uint8)
        for number in range(num):
            edge = 16 + 4 * (number % 8)
            self._masks[number, :, edge:] = 1
            self._pixels[number, 0, :, edge:] += 4
        self._masks[:, :2] = 255
        self.num_samples, self.row_shape = num, (self.spec.row_length,)

    def masks(self, positions: NDArray[np.int64]) -> NDArray[np.uint8]:
        return self._masks[positions]

    def pixels(self, positions: NDArray[np.int64]) -> NDArray[np.float16]:
        return self._pixels[positions]

    def scores(self, positions: NDArray[np.int64]) -> NDArray[np.float16]:
        """What a rule over the first band says of each pixel, for two classes."""
        says = (self._pixels[positions, 0] - 2).astype(np.float16)
        return np.stack([-says, says], axis=1)

    def rows(
        self, positions: NDArray[np.int64], views: NDArray[np.int64] | int = 0, *, out: NDArray[np.float16] | None = None
    ) -> NDArray[np.float16]:
        import torch

        with torch.inference_mode():
            maps = self._module(torch.from_numpy(self._pixels[positions]).float())
        return torch.cat([level.flatten(1) for level in maps], dim=1).numpy().astype(np.float16)


@pytest.fixture(scope="session")
def pyramid(tiny_weights: Path) -> Pyramid:
    from unchoke.features.pyramid import load_pyramid

    return load_pyramid("test_resnet", weights=tiny_weights, num_bands=4, patch_px=SIDE, strides=(4, 8, 16, 32))


@pytest.fixture(scope="session")
def make_patches(pyramid: Pyramid, tiny_weights: Path) -> Callable[[int], FakePatches]:
    return lambda num: FakePatches(pyramid, tiny_weights, num)


MakeFiles = Callable[[Iterable[str]], Path]


@pytest.fixture
def make_files(tmp_path: Path) -> MakeFiles:
    """Create files (relative paths) below a folder called data, and return that folder."""

    def make(relatives: Iterable[str]) -> Path:
        root = tmp_path / "data"
        root.mkdir(exist_ok=True)
        for relative in relatives:
            file = root / relative
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"x" + relative.encode())
        return root

    return make
