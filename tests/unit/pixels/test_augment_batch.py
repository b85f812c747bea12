"""Augmentation on whole batches: the right pixels, and each sample's own, whatever batch it is in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import refused
from unchoke.core.mixing import hash_ids
from unchoke.pixels.augment_batch import (
    SPECS,
    AugmentSpec,
    BatchPlan,
    Frames,
    augment,
    augment_spec,
    plain,
    plan_batch,
    read_frames,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NO_SCALING = {"mean": (0.0, 0.0, 0.0), "std": (1 / 255, 1 / 255, 1 / 255)}
WHOLE = AugmentSpec("whole", "a test", ratio=(1.0, 1.0))


def random_pixels(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8))


def ids(num: int) -> np.ndarray:
    return hash_ids([f"photo {number}" for number in range(num)])


def show(pixels: torch.Tensor, plan: BatchPlan, size_px: int, frames: Frames | None = None) -> torch.Tensor:
    """Augmented pixels in 0…255."""
    return augment(pixels, plan, size_px=size_px, frames=frames, **NO_SCALING)


def without_colours(plan: BatchPlan) -> BatchPlan:
    return replace(plan, colours=False)


def reference(picture: np.ndarray, plan: BatchPlan, place: int, size_px: int) -> np.ndarray:
    """One upright picture (H, W, 3), pixel by pixel, in plain numpy."""
    height, width = picture.shape[:2]
    drawn = {name: float(values[place]) for name, values in plan.drawn._asdict().items()}
    area = height * width * drawn["area"]
    wide, high = min(width, np.sqrt(area * drawn["ratio"])), min(height, np.sqrt(area / drawn["ratio"]))
    left, top = drawn["across"] * (width - wide), drawn["down"] * (height - high)
    out = np.empty((size_px, size_px, 3))
    for row in range(size_px):
        for column in range(size_px):
            u = ((column + 0.5) / size_px - 0.5) * wide * drawn["mirror"]
            v = ((row + 0.5) / size_px - 0.5) * high * drawn["flip"]
            x = left + wide / 2 + drawn["cos"] * u - drawn["sin"] * v
            y = top + high / 2 + drawn["sin"] * u + drawn["cos"] * v
            out[row, column] = bilinear(picture, mirrored(x, width), mirrored(y, height))
    return out


def mirrored(place: float, length: int) -> float:
    return length - abs(length - abs(place))


def bilinear(picture: np.ndarray, x: float, y: float) -> np.ndarray:
    x, y = np.clip(x - 0.5, 0, picture.shape[1] - 1), np.clip(y - 0.5, 0, picture.shape[0] - 1)
    x0, y0 = int(x), int(y)
    x1, y1 = min(x0 + 1, picture.shape[1] - 1), min(y0 + 1, picture.shape[0] - 1)
    upper = picture[y0, x0] * (x0 + 1 - x) + picture[y0, x1] * (x - x0)
    lower = picture[y1, x0] * (x0 + 1 - x) + picture[y1, x1] * (x - x0)
    return upper * (y0 + 1 - y) + lower * (y - y0)


def test_crop_flip_rotation_match_plain_loop() -> None:
    spec = replace(SPECS["strong"], brightness=0.0, contrast=0.0, saturation=0.0)
    pixels = random_pixels(6, 1, 20, 31)
    plan = plan_batch(spec, ids(6), seed=3, epoch=1)
    shown = show(pixels, plan, 13)[:, 0].permute(0, 2, 3, 1).numpy()
    assert {*plan.drawn.mirror} == {*plan.drawn.flip} == {-1.0, 1.0}
    for place in range(6):
        assert np.abs(shown[place] - reference(pixels[place, 0].numpy(), plan, place, 13)).max() < 0.05


@settings(max_examples=25, deadline=None)
@given(
    num=st.integers(1, 9),
    tiles=st.integers(1, 3),
    height=st.integers(5, 40),
    width=st.integers(5, 40),
    size_px=st.integers(3, 33),
    name=st.sampled_from(["light", "strong"]),
    seed=st.integers(0, 2**31),
)
def test_a_sample_looks_the_same_in_every_batch_bit_for_bit(
    num: int, tiles: int, height: int, width: int, size_px: int, name: str, seed: int
) -> None:
    pixels, hashes = random_pixels(num, tiles, height, width, seed=seed), ids(num)
    reach = torch.arange(num) % width + 1.0
    frames = Frames(torch.full((num,), float(height)), reach, torch.zeros(num, dtype=torch.bool))

    def shown(samples: list[int]) -> torch.Tensor:
        plan = plan_batch(SPECS[name], hashes[samples], seed=seed, epoch=2)
        some = Frames(frames.heights[samples], frames.widths[samples], frames.turned[samples])
        return augment(pixels[samples], plan, size_px=size_px, mean=MEAN, std=STD, frames=some)

    together = shown(list(range(num)))
    assert torch.equal(together, torch.cat([shown([sample]) for sample in range(num)]))
    assert torch.equal(together.flip(0), shown(list(range(num))[::-1]))
    assert torch.equal(together[num // 2 :], shown(list(range(num // 2, num))))


def test_the_number_of_threads_changes_no_bit() -> None:
    pixels, plan = random_pixels(8, 1, 96, 128), plan_batch(SPECS["strong"], ids(8), seed=0, epoch=0)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(augment(pixels, plan, size_px=64, mean=MEAN, std=STD))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_every_tile_of_a_sample_is_treated_alike() -> None:
    tile = random_pixels(4, 1, 24, 24)
    shown = show(tile.expand(4, 3, 24, 24, 3), plan_batch(SPECS["strong"], ids(4), seed=1, epoch=5), 16)
    assert shown.shape == (4, 3, 3, 16, 16)
    assert torch.equal(shown[:, 0], shown[:, 1])
    assert torch.equal(shown[:, 0], shown[:, 2])


def test_nothing_beyond_the_frame_is_ever_shown() -> None:
    plan = plan_batch(SPECS["strong"], ids(16), seed=1, epoch=5)
    pixels = torch.full((16, 1, 30, 60, 3), 100, dtype=torch.uint8)
    frames = Frames(torch.full((16,), 30.0), torch.full((16,), 41.0), torch.zeros(16, dtype=torch.bool))
    pixels[:, :, :, 41:] = 255
    assert torch.allclose(show(pixels, without_colours(plan), 20, frames), torch.tensor(100.0), atol=1e-3)


def test_a_picture_on_its_side_is_shown_upright() -> None:
    plan = without_colours(plan_batch(SPECS["strong"], ids(5), seed=2, epoch=2))
    upright = random_pixels(5, 1, 37, 22)
    lying = upright.transpose(2, 3).contiguous()
    num = torch.ones(5)
    shown = show(lying, plan, 18, Frames(37 * num, 22 * num, num > 0))
    assert torch.allclose(shown, show(upright, plan, 18), atol=1e-2)


def test_whole_crop_leaves_picture_unchanged() -> None:
    pixels = random_pixels(3, 1, 16, 16)
    shown = augment(pixels, plan_batch(WHOLE, ids(3), seed=0, epoch=0), size_px=16, mean=MEAN, std=STD)
    assert torch.allclose(shown, plain(pixels, mean=MEAN, std=STD), atol=1e-3)


@pytest.mark.parametrize("kind", ["brightness", "contrast", "saturation"])
def test_colours_change_as_torchvision_changes_them(kind: str) -> None:
    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    from torchvision.transforms import functional

    pixels = random_pixels(4, 1, 12, 12) // 3 + 80  # far enough from both ends that nothing is clipped
    plan = plan_batch(replace(WHOLE, **{kind: 0.2}), ids(4), seed=4, epoch=0)
    shown = augment(pixels, plan, size_px=12, mean=(0.5, 0.5, 0.5), std=(1 / 255,) * 3) / 255 + 0.5
    for place, factor in enumerate(getattr(plan.drawn, kind)):
        picture = pixels[place, 0].permute(2, 0, 1).float() / 255
        if kind == "contrast":  # torchvision's middle is the picture's own mean
            expected = (picture - 0.5) * float(factor) + 0.5
        else:
            expected = getattr(functional, f"adjust_{kind}")(picture, float(factor))
        assert torch.allclose(shown[place, 0], expected, atol=2e-3)


def test_colours_stay_within_what_pixels_can_be() -> None:
    pixels = torch.tensor([0, 255], dtype=torch.uint8).repeat(8, 1, 6, 3, 1).unsqueeze(-1).expand(8, 1, 6, 3, 2, 3).flatten(3, 4)
    shown = show(pixels, plan_batch(SPECS["strong"], ids(8), seed=0, epoch=0), 6)
    assert float(shown.min()) >= 0
    assert float(shown.max()) <= 255
    assert float(shown.max()) == 255


def test_draws_depend_on_seed_epoch_sample() -> None:
    spec, hashes = SPECS["strong"], ids(4000)
    first = plan_batch(spec, hashes, seed=1, epoch=1)
    assert np.array_equal(first.values, plan_batch(spec, hashes, seed=1, epoch=1).values)
    for other in (plan_batch(spec, hashes, seed=2, epoch=1), plan_batch(spec, hashes, seed=1, epoch=2)):
        assert (first.values != other.values).any(axis=1).mean() > 0.99
    assert np.unique(first.values, axis=0).shape == first.values.shape
    drawn = first.drawn
    assert max(abs(drawn.mirror.mean()), abs(drawn.flip.mean())) < 0.1
    assert np.allclose([drawn.area.min(), drawn.area.max()], spec.area, atol=0.01)
    assert np.allclose([drawn.ratio.min(), drawn.ratio.max()], spec.ratio, atol=0.01)
    assert np.allclose(np.degrees(np.arcsin([drawn.sin.min(), drawn.sin.max()])), [-30, 30], atol=0.5)
    independent = np.stack([values for name, values in drawn._asdict().items() if name != "cos"])
    assert np.abs(np.corrcoef(independent) - np.eye(len(independent))).max() < 0.08


def test_plain_pixels_normalised_as_frozen_path() -> None:
    from unchoke.features.engines import FromPixels
    from unchoke.pixels.resize import Preprocess

    pixels = random_pixels(5, 1, 9, 9)
    frozen = FromPixels(torch.nn.Identity(), Preprocess(9, 1.0, "center", "bicubic", MEAN, STD))
    assert torch.equal(plain(pixels, mean=MEAN, std=STD)[:, 0], frozen(pixels[:, 0]))


@pytest.mark.parametrize("name", ["light", "strong"])
def test_everything_is_computed_where_the_pixels_are(name: str) -> None:
    raw = torch.zeros((3, 1, 20, 25, 3), dtype=torch.uint8, device="meta")  # a tensor left elsewhere would not mix with these
    pixels, frames = read_frames(raw)
    plan = plan_batch(SPECS[name], ids(3), seed=0, epoch=0)
    shown = augment(pixels, plan, size_px=16, mean=MEAN, std=STD, frames=frames)
    assert (shown.shape, shown.device.type) == ((3, 1, 3, 16, 16), "meta")
    assert augment(pixels, plan, size_px=16, mean=MEAN, std=STD).device.type == "meta"


def test_an_empty_batch_stays_empty() -> None:
    plan = plan_batch(SPECS["strong"], ids(0), seed=0, epoch=0)
    assert augment(random_pixels(0, 2, 8, 8), plan, size_px=6, mean=MEAN, std=STD).shape == (0, 2, 3, 6, 6)


def test_unknown_augmentation_refused() -> None:
    with refused("unknown-augmentation", "'heavy'", "none, light, strong"):
        augment_spec("heavy")
    assert augment_spec("light").area == (0.35, 1.0)
