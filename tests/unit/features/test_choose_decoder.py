"""A GPU decodes only where its features agree and it is worth it; the choice says what was compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unchoke.core.choices import Choice
from unchoke.features import gpu_decoder as module
from unchoke.features.encoders import Encoder
from unchoke.features.engines import TorchEngine
from unchoke.features.gpu_decoder import choose_decoder
from unchoke.features.recipe import PictureRecipe
from unchoke.pixels.image import decode_image
from unchoke.pixels.resize import fit_to_input


class FakeDecoder:
    """Decodes as the CPU does, but for `darker`; or not at all."""

    darker, fails = 0, False

    def __init__(self, preprocess: Any, device: torch.device) -> None:
        self._preprocess = preprocess
        if self.fails:
            raise RuntimeError("nvjpeg is not there")

    def __call__(self, files: Sequence[Any]) -> tuple[torch.Tensor, dict[int, str]]:
        pixels = np.stack([fit_to_input(decode_image(bytes(file.data)), self._preprocess) for file in files])
        return torch.from_numpy(np.maximum(pixels.astype(int) - self.darker, 0).astype(np.uint8)), {}


def choose(tiny: Encoder, folder: Path, *, readers: int = 0, num_augmented: int = 0) -> Choice | None:
    """Without readers to compete with, how busy the machine is plays no part."""
    paths = {file.name: str(file) for file in sorted(folder.rglob("*.jpg"))[:12]}
    recipe = PictureRecipe(tiny.spec, "torch", "f32", num_augmented)
    engine = TorchEngine(tiny, device=torch.device("cpu"), batch=4)
    return choose_decoder(paths, recipe, engine, readers=readers)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> type[FakeDecoder]:
    kind = type("Card", (FakeDecoder,), {})
    monkeypatch.setattr(module, "decodes_jpegs", lambda device: True)
    monkeypatch.setattr(module, "GpuDecoder", kind)
    return kind


def test_a_cpu_has_no_decoder_to_choose(tiny: Encoder, own_photos: Path) -> None:
    assert choose(tiny, own_photos) is None


@pytest.mark.usefixtures("card")
def test_views_are_not_decoded_on_a_card(tiny: Encoder, own_photos: Path) -> None:
    assert choose(tiny, own_photos, num_augmented=2) is None


@pytest.mark.usefixtures("card")
def test_one_that_agrees_is_chosen_with_its_evidence(tiny: Encoder, own_photos: Path) -> None:
    choice = choose(tiny, own_photos)
    assert choice is not None
    assert choice.value == "card"
    assert choice.evidence["mean_cosine"] == pytest.approx(1, abs=1e-4)
    assert {"card_images_per_s", "cpu_images_per_s"} <= set(choice.evidence)


def test_one_that_disagrees_is_not(tiny: Encoder, own_photos: Path, card: type[FakeDecoder]) -> None:
    card.darker = 90
    choice = choose(tiny, own_photos)
    assert choice is not None
    assert choice.value == "cpu"
    assert choice.evidence["mean_cosine"] < 0.999


@pytest.mark.usefixtures("card")
def test_many_readers_may_be_faster(tiny: Encoder, own_photos: Path) -> None:
    choice = choose(tiny, own_photos, readers=1_000_000)
    assert choice is not None
    assert choice.value == "cpu"
    assert choice.evidence["cpu_images_per_s"] > choice.evidence["card_images_per_s"]


def test_a_card_that_cannot_is_passed_over(tiny: Encoder, own_photos: Path, card: type[FakeDecoder]) -> None:
    card.fails = True
    choice = choose(tiny, own_photos)
    assert choice is not None
    assert (choice.value, "nvjpeg is not there" in choice.reason) == ("cpu", True)


@pytest.mark.usefixtures("card")
def test_files_of_another_kind_are_left_to_the_readers(tiny: Encoder, own_photos: Path) -> None:
    for file in own_photos.rglob("*.jpg"):
        file.write_bytes(b"not a jpeg at all")
    choice = choose(tiny, own_photos)
    assert choice is not None
    assert choice.value == "cpu"
