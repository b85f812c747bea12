"""The fast resize equals timm's own evaluation transform."""

import numpy as np
import pytest
from PIL import Image

from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.pixels.image import DecodeError
from unchoke.pixels.resize import Preprocess, fit_to_input, resize_short_side


def preprocess(**changes: object) -> Preprocess:
    plain = {"size_px": 64, "crop_share": 0.875, "crop_mode": "center", "interpolation": "bicubic"}
    return Preprocess(**{**plain, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), **changes})  # type: ignore[arg-type]


def photo_like(height: int, width: int) -> np.ndarray:
    """Random, but no wilder from pixel to pixel than a photo: between extremes the order of the two passes would show."""
    coarse = np.random.default_rng(0).integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR))


def by_timm(image: np.ndarray, wanted: Preprocess) -> np.ndarray:
    prepare_torchvision()
    from timm.data import create_transform

    transform = create_transform(
        input_size=(3, wanted.size_px, wanted.size_px),
        interpolation=wanted.interpolation,
        crop_pct=wanted.crop_share,
        crop_mode=wanted.crop_mode,
        use_prefetcher=True,
    )
    return np.asarray(transform(Image.fromarray(image))).transpose(1, 2, 0)


@pytest.mark.parametrize("shape", [(100, 150), (150, 100), (99, 99), (301, 77), (40, 50), (73, 74)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_pixels_equal_timms_within_rounding(shape: tuple[int, int], interpolation: str) -> None:
    image = photo_like(*shape)
    wanted = preprocess(interpolation=interpolation)
    ours, theirs = fit_to_input(image, wanted), by_timm(image, wanted)
    assert ours.shape == theirs.shape == (64, 64, 3)
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 2


@pytest.mark.parametrize("changes", [{"crop_mode": "squash"}, {"crop_mode": "border"}, {"interpolation": "lanczos"}])
def test_unusual_settings_go_through_timm_itself(changes: dict[str, str]) -> None:
    image = np.random.default_rng(1).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    wanted = preprocess(**changes)
    assert not wanted.is_plain
    assert (fit_to_input(image, wanted) == by_timm(image, wanted)).all()


def test_settings_survive_a_round_trip() -> None:
    assert Preprocess.from_dict(preprocess().to_dict()) == preprocess()


@pytest.mark.parametrize("shape", [(1, 20_000), (20_000, 1)])
def test_strip_refused_by_resized_size(shape: tuple[int, int]) -> None:
    with pytest.raises(DecodeError, match=r"^bomb-sized: "):
        resize_short_side(np.zeros((*shape, 3), np.uint8), 256, interpolation="bicubic")


def test_long_picture_memory_is_input_size() -> None:
    shown = fit_to_input(np.zeros((8, 2000, 3), np.uint8), preprocess())
    assert shown.base is None or shown.base.nbytes <= 8 * shown.nbytes
