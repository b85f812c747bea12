"""One suite for every engine of the frozen part: whoever passes it may be offered to `choose_engine`."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from unchoke.features.agree import ASKED_FOR_INT8, USUAL, Tolerance, compare
from unchoke.features.cut import cut_network, frozen_part
from unchoke.features.encoders import Encoder, load_encoder
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.engines import Engine, TorchEngine
from unchoke.features.extractor import load_views
from unchoke.features.recipe import Recipe
from unchoke.photos.pixels.image import Pixels

pytestmark = pytest.mark.usefixtures("one_torch_thread")

CPU = torch.device("cpu")
BATCH = 4
TINY = "test_resnet"
EXACT = Tolerance(mean_cosine=0.999999, worst_centred=0.99999)
Build = Callable[[Encoder, Path, Pixels], Engine]
BUILDERS: dict[str, Build] = {
    "torch f32": lambda encoder, _, __: TorchEngine(encoder, device=CPU, batch=BATCH),
    "torch f32 channels_last": lambda encoder, _, __: TorchEngine(encoder, device=CPU, batch=BATCH, channels_last=True),
    "torch bf16": lambda encoder, _, __: TorchEngine(encoder, device=CPU, precision="bf16", batch=BATCH),
    "openvino f32": lambda encoder, folder, _: OpenVinoEngine(encoder, precision="f32", streams=2, batch=BATCH, keep_in=folder),
    "openvino bf16": lambda encoder, folder, _: OpenVinoEngine(encoder, precision="bf16", streams=2, batch=BATCH, keep_in=folder),
    "openvino int8": lambda encoder, folder, sample: OpenVinoEngine(
        encoder, precision="int8", streams=2, batch=BATCH, keep_in=folder, calibration=sample
    ),
}
TOLERANCES = {"torch f32": EXACT, "torch f32 channels_last": EXACT, "openvino f32": EXACT, "openvino int8": ASKED_FOR_INT8}


@pytest.fixture(scope="module", params=["end", "-2"])
def cut(request: pytest.FixtureRequest) -> str:
    """The whole network, and the part of it before its last two blocks."""
    return str(request.param)


@pytest.fixture(scope="module")
def encoder(tiny_weights: Path, cut: str) -> Encoder:
    whole = load_encoder(TINY, weights=tiny_weights)
    return frozen_part(whole, cut_network(whole, cut))


@pytest.fixture(scope="module")
def pixels(photos: Path, encoder: Encoder) -> Pixels:
    """Real input, and more of it than two whole batches: the last one needs padding."""
    recipe = Recipe(encoder.spec, "torch", "f32")
    files = sorted(photos.rglob("*.jpg"))[::4][: 2 * BATCH + 2]
    return np.stack([load_views(str(file), file.name, "", recipe)[0] for file in files])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module", params=BUILDERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def engine(kind: str, encoder: Encoder, kept: Path, pixels: Pixels) -> Engine:
    return BUILDERS[kind](encoder, kept, pixels)


@pytest.fixture(scope="module")
def reference(encoder: Encoder, pixels: Pixels) -> np.ndarray:
    """The network itself, called as timm's documentation does: normalised float32, one picture at a time."""
    preprocess = encoder.spec.preprocess
    scaled = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    normalised = (scaled - torch.tensor(preprocess.mean).view(3, 1, 1)) / torch.tensor(preprocess.std).view(3, 1, 1)
    with torch.inference_mode():
        return torch.cat([encoder.module(one[None]) for one in normalised]).numpy()


def test_features_are_float32_rows_of_the_network_s_shape(engine: Engine, cut: str, pixels: Pixels) -> None:
    features = engine.encode(pixels)
    shape = {"end": (96,), "-2": (48, 20, 20)}[cut]
    assert (features.shape, features.dtype) == ((len(pixels), *shape), np.float32)
    assert np.isfinite(features).all()


def test_features_agree_with_the_network_within_the_tolerance(
    engine: Engine, kind: str, pixels: Pixels, reference: np.ndarray
) -> None:
    agreement = compare(reference, engine.encode(pixels))
    assert agreement.within(TOLERANCES.get(kind, USUAL)), agreement


def test_float32_is_equal_but_for_rounding(engine: Engine, pixels: Pixels, reference: np.ndarray) -> None:
    if engine.precision == "f32":
        np.testing.assert_allclose(engine.encode(pixels), reference, rtol=1e-3, atol=1e-4)
    else:
        assert (engine.encode(pixels) != reference).any()  # a lower precision that changes nothing was not used


def test_a_picture_s_features_do_not_depend_on_its_companions(engine: Engine, pixels: Pixels) -> None:
    together = engine.encode(pixels)
    alone = np.concatenate([engine.encode(pixels[index : index + 1]) for index in range(len(pixels))])
    backwards = engine.encode(pixels[::-1])[::-1]
    assert np.array_equal(together, alone)
    assert np.array_equal(together, backwards)


def test_any_number_of_pictures_is_padded_and_cut_again(engine: Engine, pixels: Pixels) -> None:
    whole = engine.encode(pixels)
    for num in (1, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH):
        assert np.array_equal(engine.encode(pixels[:num]), whole[:num])


def test_the_pixels_handed_in_are_left_alone(engine: Engine, pixels: Pixels) -> None:
    before = pixels.copy()
    engine.encode(pixels[1:])
    assert np.array_equal(before, pixels)


def test_several_threads_at_once_get_the_same_numbers(engine: Engine, pixels: Pixels) -> None:
    orders = [np.random.default_rng(seed).permutation(len(pixels)) for seed in range(8)]
    alone = engine.encode(pixels)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda order: engine.encode(pixels[order]), orders))
    assert all(np.array_equal(features, alone[order]) for features, order in zip(found, orders, strict=True))


def test_a_result_is_the_caller_s_own(engine: Engine, pixels: Pixels) -> None:
    first = engine.encode(pixels[:BATCH])
    copy = first.copy()
    engine.encode(pixels[BATCH : 2 * BATCH])
    assert np.array_equal(first, copy)


def test_an_engine_says_what_it_is(engine: Engine, kind: str) -> None:
    described = json.loads(json.dumps(engine.describe()))
    assert (described["engine"], described["precision"], described["batch"]) == (*kind.split(" ")[:2], BATCH)
    assert described["version"]
    assert engine.slots >= 1


def test_a_second_engine_of_the_same_kind_gives_the_same_bits(
    kind: str, engine: Engine, encoder: Encoder, kept: Path, pixels: Pixels
) -> None:
    again = BUILDERS[kind](encoder, kept, pixels)
    assert np.array_equal(again.encode(pixels), engine.encode(pixels))
