"""One suite for every engine of the pyramid: whoever passes it may be offered to `choose_engine`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from unchoke.features.agree import USUAL, Candidate, Tolerance, choose_engine, compare
from unchoke.features.pyramid import PyramidEngine, PyramidSpec, TorchPyramidEngine, load_pyramid
from unchoke.features.pyramid_openvino import OpenVinoPyramidEngine

pytestmark = pytest.mark.usefixtures("one_torch_thread")

CPU = torch.device("cpu")
BATCH = 4
TINY = "test_resnet"
EXACT = Tolerance(mean_cosine=0.999999, worst_centred=0.99999)
Pyramid = tuple[torch.nn.Module, PyramidSpec]
BUILDERS: dict[str, Callable[[Pyramid, Path], PyramidEngine]] = {
    "torch f32": lambda pyramid, _: TorchPyramidEngine(*pyramid, device=CPU, batch=BATCH),
    "torch f32 channels_last": lambda pyramid, _: TorchPyramidEngine(*pyramid, device=CPU, batch=BATCH, channels_last=True),
    "torch bf16": lambda pyramid, _: TorchPyramidEngine(*pyramid, device=CPU, batch=BATCH, precision="bf16"),
    "openvino f32": lambda pyramid, folder: OpenVinoPyramidEngine(
        *pyramid, precision="f32", streams=2, batch=BATCH, keep_in=folder
    ),
    "openvino bf16": lambda pyramid, folder: OpenVinoPyramidEngine(
        *pyramid, precision="bf16", streams=2, batch=BATCH, keep_in=folder
    ),
}


@pytest.fixture(scope="module")
def pyramid(tiny_weights: Path) -> Pyramid:
    return load_pyramid(TINY, weights=tiny_weights, num_bands=4, patch_px=64, strides=(4, 8, 16))


@pytest.fixture(scope="module")
def patches() -> np.ndarray:
    """Nine smooth patches of four bands, one of them without any valid pixel."""
    coarse = torch.from_numpy(np.random.default_rng(5).normal(size=(9, 4, 6, 6)))
    smooth = torch.nn.functional.interpolate(coarse, size=(64, 64), mode="bicubic").numpy().astype(np.float16)
    smooth[8] = 0
    return smooth


@pytest.fixture(scope="module")
def truth(pyramid: Pyramid, patches: np.ndarray) -> np.ndarray:
    """What the plain module gives, its maps flattened, the finest first."""
    with torch.inference_mode():
        maps = pyramid[0](torch.from_numpy(patches).float())
    return np.concatenate([level.flatten(1).numpy() for level in maps], axis=1)


@pytest.fixture(scope="module", params=BUILDERS)
def engine(request: pytest.FixtureRequest, pyramid: Pyramid, tmp_path_factory: pytest.TempPathFactory) -> PyramidEngine:
    return BUILDERS[request.param](pyramid, tmp_path_factory.getbasetemp() / "kept")


def test_rows_agree_with_the_plain_module(engine: PyramidEngine, patches: np.ndarray, truth: np.ndarray) -> None:
    rows = engine.encode(patches)
    assert rows.shape == truth.shape and rows.dtype == np.float32
    assert compare(truth, rows).within(USUAL if engine.precision == "bf16" else EXACT)


def test_a_row_does_not_depend_on_how_many_came_with_it(engine: PyramidEngine, patches: np.ndarray) -> None:
    together = engine.encode(patches)
    assert np.array_equal(engine.encode(patches[4:5])[0], together[4])
    assert np.array_equal(engine.encode(patches[2:7]), together[2:7])


def test_half_and_single_precision_patches_give_the_same_rows(engine: PyramidEngine, patches: np.ndarray) -> None:
    assert np.array_equal(engine.encode(patches[:3]), engine.encode(patches[:3].astype(np.float32)))


def test_nothing_in_gives_nothing_out(engine: PyramidEngine, patches: np.ndarray, truth: np.ndarray) -> None:
    assert engine.encode(patches[:0]).shape == (0, truth.shape[1])


def test_several_threads_may_use_it_at_once(engine: PyramidEngine, patches: np.ndarray) -> None:
    alone = [engine.encode(patches[number : number + 2]) for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda number: engine.encode(patches[number : number + 2]), range(8)))
    assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))


def test_it_says_what_it_is(engine: PyramidEngine) -> None:
    described = engine.describe()
    assert described["engine"] == engine.name and described["precision"] == engine.precision
    assert engine.slots >= 1 and engine.batch == BATCH


def test_the_comparison_of_engines_takes_patches(pyramid: Pyramid, patches: np.ndarray) -> None:
    reference = TorchPyramidEngine(*pyramid, device=CPU, batch=BATCH)
    candidate = Candidate("torch:f32", lambda: TorchPyramidEngine(*pyramid, device=CPU, batch=2))
    engine, choice = choose_engine(reference, [candidate], patches, shown="patches")
    assert engine is not reference and "9 of your patches" in choice.reason
