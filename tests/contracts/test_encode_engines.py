"""One suite for every engine and every kind of frozen network: whoever passes it may be offered to `choose_engine`.

By default every network and every engine takes part; all pairs of them are a campaign.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from unchoke.features.agree import ASKED_FOR_INT8, USUAL, Candidate, FeatureTolerance, choose_engine, compare
from unchoke.features.cut import cut_network, frozen_part
from unchoke.features.encoders import Encoder, load_encoder
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.engines import FrozenEngine, FrozenNetwork, TorchEngine
from unchoke.features.extractor import load_views
from unchoke.features.pyramid import Pyramid, load_pyramid
from unchoke.features.recipe import PictureRecipe

pytestmark = pytest.mark.usefixtures("one_torch_thread")

CPU = torch.device("cpu")
BATCH = 4
TINY = "test_resnet"
EXACT = FeatureTolerance(mean_cosine=0.999999, worst_centred=0.99999)
Build = Callable[[FrozenNetwork, Path, np.ndarray], FrozenEngine]
BUILDERS: dict[str, Build] = {
    "torch f32": lambda network, _, __: TorchEngine(network, device=CPU, batch=BATCH),
    "torch f32 channels_last": lambda network, _, __: TorchEngine(network, device=CPU, batch=BATCH, channels_last=True),
    "torch bf16": lambda network, _, __: TorchEngine(network, device=CPU, precision="bf16", batch=BATCH),
    "openvino f32": lambda network, folder, _: OpenVinoEngine(network, precision="f32", streams=2, batch=BATCH, keep_in=folder),
    "openvino bf16": lambda network, folder, _: OpenVinoEngine(network, precision="bf16", streams=2, batch=BATCH, keep_in=folder),
    "openvino int8": lambda network, folder, sample: OpenVinoEngine(
        network, precision="int8", streams=2, batch=BATCH, keep_in=folder, calibration=sample
    ),
}
TOLERANCES = {"torch f32": EXACT, "torch f32 channels_last": EXACT, "openvino f32": EXACT, "openvino int8": ASKED_FOR_INT8}
SHAPES = {"end": (96,), "blocks": (672,), "-2": (48, 20, 20), "pyramid": (14_336,)}
DEFAULT = [
    ("end", "torch f32"),
    ("-2", "torch f32 channels_last"),
    ("blocks", "torch bf16"),
    ("blocks", "openvino f32"),
    ("pyramid", "openvino f32"),
    ("-2", "openvino bf16"),
    ("end", "openvino int8"),
]
REST = [(name, kind) for name in SHAPES for kind in BUILDERS if (name, kind) not in [*DEFAULT, ("pyramid", "openvino int8")]]
PAIRS = [*DEFAULT, *(pytest.param(pair, marks=pytest.mark.campaign) for pair in REST)]
PYRAMIDS = [("pyramid", "openvino f32"), ("pyramid", "torch f32")]


@pytest.fixture(scope="module", params=PAIRS, ids=" ".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A network and a kind of engine: an encoder whole, with pooled blocks, or up to its last two blocks; or maps of patches."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def name(pair: tuple[str, str]) -> str:
    return pair[0]


@pytest.fixture(scope="module")
def kind(pair: tuple[str, str]) -> str:
    return pair[1]


@pytest.fixture(scope="module")
def network(tiny_weights: Path, name: str) -> Encoder | Pyramid:
    if name == "pyramid":
        return load_pyramid(TINY, weights=tiny_weights, num_bands=4, patch_px=64, strides=(4, 8, 16))
    whole = load_encoder(TINY, weights=tiny_weights)
    return frozen_part(whole, cut_network(whole, name))


@pytest.fixture(scope="module")
def inputs(photos: Path, network: Encoder | Pyramid) -> np.ndarray:
    """Real photos, or smooth patches of four bands; more of them than two whole batches: the last one needs padding."""
    if isinstance(network, Pyramid):
        coarse = torch.from_numpy(np.random.default_rng(5).normal(size=(9, 4, 6, 6)))
        smooth = torch.nn.functional.interpolate(coarse, size=(64, 64), mode="bicubic").numpy().astype(np.float16)
        smooth[8] = 0  # without any valid pixel
        return smooth
    recipe = PictureRecipe(network.spec, "torch", "f32")
    files = sorted(photos.rglob("*.jpg"))[::4][: 2 * BATCH + 2]
    return np.stack([load_views(str(file), file.name, "", recipe)[0] for file in files])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "engines"


@pytest.fixture(scope="module")
def engine(kind: str, network: FrozenNetwork, kept: Path, inputs: np.ndarray) -> FrozenEngine:
    return BUILDERS[kind](network, kept, inputs)


@pytest.fixture(scope="module")
def reference(network: Encoder | Pyramid, inputs: np.ndarray) -> np.ndarray:
    """The network itself, called as timm's documentation does: normalised float32, one input at a time."""
    if isinstance(network, Pyramid):
        with torch.inference_mode():
            maps = [network.module(torch.from_numpy(one[None]).float()) for one in inputs]
        return np.concatenate([np.concatenate([level.flatten(1).numpy() for level in one], axis=1) for one in maps])
    preprocess = network.spec.preprocess
    scaled = torch.from_numpy(inputs).permute(0, 3, 1, 2).float() / 255
    normalised = (scaled - torch.tensor(preprocess.mean).view(3, 1, 1)) / torch.tensor(preprocess.std).view(3, 1, 1)
    with torch.inference_mode():
        return torch.cat([network.module(one[None]) for one in normalised]).numpy()


def test_features_are_float32_rows(engine: FrozenEngine, name: str, inputs: np.ndarray) -> None:
    features = engine.encode(inputs)
    assert (features.shape, features.dtype) == ((len(inputs), *SHAPES[name]), np.float32)
    assert np.isfinite(features).all()


def test_features_agree_with_the_network(engine: FrozenEngine, kind: str, inputs: np.ndarray, reference: np.ndarray) -> None:
    agreement = compare(reference, engine.encode(inputs))
    assert agreement.within(TOLERANCES.get(kind, USUAL)), agreement


def test_float32_equal_but_for_rounding(engine: FrozenEngine, inputs: np.ndarray, reference: np.ndarray) -> None:
    if engine.precision == "f32":
        np.testing.assert_allclose(engine.encode(inputs), reference, rtol=1e-3, atol=1e-4)
    else:
        assert (engine.encode(inputs) != reference).any()  # a lower precision that changes nothing was not used


def test_features_independent_of_the_batch(engine: FrozenEngine, inputs: np.ndarray) -> None:
    together = engine.encode(inputs)
    alone = np.concatenate([engine.encode(inputs[index : index + 1]) for index in range(len(inputs))])
    backwards = engine.encode(inputs[::-1])[::-1]
    assert np.array_equal(together, alone)
    assert np.array_equal(together, backwards)


def test_any_number_of_inputs(engine: FrozenEngine, inputs: np.ndarray) -> None:
    whole = engine.encode(inputs)
    for num in (0, 1, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH):
        assert np.array_equal(engine.encode(inputs[:num]), whole[:num])


def test_inputs_are_left_alone(engine: FrozenEngine, inputs: np.ndarray) -> None:
    before = inputs.copy()
    engine.encode(inputs[1:])
    assert np.array_equal(before, inputs)


def test_threads_get_the_same_numbers(engine: FrozenEngine, inputs: np.ndarray) -> None:
    orders = [np.random.default_rng(seed).permutation(len(inputs)) for seed in range(8)]
    alone = engine.encode(inputs)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda order: engine.encode(inputs[order]), orders))
    assert all(np.array_equal(features, alone[order]) for features, order in zip(found, orders, strict=True))


def test_result_is_the_callers_own(engine: FrozenEngine, inputs: np.ndarray) -> None:
    first = engine.encode(inputs[:BATCH])
    copy = first.copy()
    engine.encode(inputs[BATCH : 2 * BATCH])
    assert np.array_equal(first, copy)


def test_engine_describes_itself(engine: FrozenEngine, kind: str) -> None:
    described = json.loads(json.dumps(engine.describe()))
    assert (described["engine"], described["precision"], described["batch"]) == (*kind.split(" ")[:2], BATCH)
    assert described["version"]
    assert engine.slots >= 1


def test_second_engine_same_bits(kind: str, engine: FrozenEngine, network: FrozenNetwork, kept: Path, inputs: np.ndarray) -> None:
    again = BUILDERS[kind](network, kept, inputs)
    assert np.array_equal(again.encode(inputs), engine.encode(inputs))


@pytest.mark.parametrize("pair", PYRAMIDS, indirect=True, ids=" ".join, scope="module")
def test_half_and_single_precision_inputs(engine: FrozenEngine, inputs: np.ndarray) -> None:
    assert np.array_equal(engine.encode(inputs[:3]), engine.encode(inputs[:3].astype(np.float32)))


def test_choose_engine_takes_patches(tiny_weights: Path) -> None:
    pyramid = load_pyramid(TINY, weights=tiny_weights, num_bands=4, patch_px=64, strides=(4, 8, 16))
    patches = np.random.default_rng(5).normal(size=(9, 4, 64, 64)).astype(np.float16)
    reference = TorchEngine(pyramid, device=CPU, batch=BATCH)
    candidate = Candidate("torch:f32", lambda: TorchEngine(pyramid, device=CPU, batch=2))
    engine, choice = choose_engine(reference, [candidate], patches, shown="patches")
    assert engine is not reference and "9 of your patches" in choice.reason  # how many and of what, as handed in
