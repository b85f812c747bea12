"""A faster engine is used only where its numbers agree, and what was passed over is said."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from unchoke.core.errors import missing_extra
from unchoke.features.agree import USUAL, Candidate, FeatureTolerance, choose_engine, compare
from unchoke.features.encoders import Encoder
from unchoke.features.engines import Features, FrozenEngine, TorchEngine
from unchoke.pixels.image import Pixels


@dataclass
class Wrong:
    """An engine with a planted fault: what a wrong conversion does to pixels or features."""

    inner: FrozenEngine
    fault: str
    name: str = "wrong"
    precision: str = "f32"
    batch: int = 4
    slots: int = 1

    def encode(self, pixels_nhwc: Pixels) -> Features:
        if self.fault == "channels swapped":
            return self.inner.encode(np.ascontiguousarray(pixels_nhwc[..., ::-1]))
        features = self.inner.encode(pixels_nhwc)
        if self.fault == "noise":
            noise = np.random.default_rng(0).normal(size=features.shape) * features.std()
            return (features + 0.3 * noise).astype(np.float32)
        if self.fault == "one picture":
            features[len(features) // 2] = features[0]
        if self.fault == "nan":
            features[0, 0] = np.nan
        return features

    def describe(self) -> dict[str, Any]:
        return {}


@pytest.fixture(scope="module")
def reference(tiny: Encoder) -> TorchEngine:
    return TorchEngine(tiny, device=torch.device("cpu"), batch=4)


@pytest.fixture(scope="module")
def sample() -> Pixels:
    coarse = np.random.default_rng(0).integers(0, 256, (8, 5, 5, 3), dtype=np.uint8)
    return coarse.repeat(32, axis=1).repeat(32, axis=2)


@pytest.mark.parametrize("fault", ["channels swapped", "noise", "one picture", "nan"])
def test_a_planted_wrong_engine_is_refused_and_said(reference: TorchEngine, sample: Pixels, fault: str) -> None:
    engine, choice = choose_engine(reference, [Candidate("wrong:f32", lambda: Wrong(reference, fault))], sample)
    assert engine is reference
    assert choice.value == "torch:f32"
    assert "wrong:f32" in choice.reason
    assert "0.999" in choice.reason
    assert set(choice.evidence) == {"torch:f32", "wrong:f32"}


def test_first_candidate_that_agrees_is_used(reference: TorchEngine, sample: Pixels) -> None:
    def absent() -> FrozenEngine:
        raise missing_extra("openvino", extra="openvino", purpose="the OpenVINO engine")

    right = Wrong(reference, "none")
    candidates = [Candidate("openvino:bf16", absent), Candidate("a:f32", lambda: Wrong(reference, "noise"))]
    never = Candidate("never", lambda: pytest.fail("built although another was good"))
    engine, choice = choose_engine(reference, [*candidates, Candidate("b:f32", lambda: right), never], sample)
    assert engine is right
    assert choice.value == "b:f32"
    assert "8 of your pictures" in choice.reason
    assert "openvino:bf16" in choice.reason and "'openvino'" in choice.reason
    assert "a:f32" in choice.reason
    assert choice.evidence["b:f32"]["mean_cosine"] == 1.0


def test_a_wider_tolerance_lets_more_through(reference: TorchEngine, sample: Pixels) -> None:
    loose = Candidate("noisy", lambda: Wrong(reference, "noise"), FeatureTolerance(mean_cosine=-1, worst_centred=-1))
    assert choose_engine(reference, [loose], sample)[1].value == "noisy"


def test_without_pictures_or_candidates_plain_torch_stays(reference: TorchEngine, sample: Pixels) -> None:
    engine, choice = choose_engine(reference, [Candidate("x", lambda: pytest.fail("built"))], sample[:0])
    assert (engine, "no picture" in choice.reason) == (reference, True)
    assert choose_engine(reference, [], sample)[1].value == "torch:f32"


def test_centring_shows_what_a_common_offset_hides() -> None:
    random = np.random.default_rng(1)
    features = (100 + random.normal(size=(20, 50))).astype(np.float32)
    shuffled = features[random.permutation(20)]
    agreement = compare(features, shuffled)
    assert agreement.mean_cosine > 0.999
    assert agreement.worst_centred < 0.5
    assert not agreement.within(USUAL)


def test_rows_of_zeros_agree_with_zeros_only() -> None:
    zeros, ones = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    assert compare(zeros, zeros).within(USUAL)
    assert not compare(zeros, ones).within(USUAL)


def test_activations_are_compared_as_one_vector() -> None:
    random = np.random.default_rng(2)
    maps = random.normal(size=(6, 4, 3, 3)).astype(np.float32)
    assert compare(maps, maps).within(USUAL)
    assert compare(maps, maps).mean_cosine == pytest.approx(compare(maps.reshape(6, -1), maps.reshape(6, -1)).mean_cosine)
    turned = maps.transpose(0, 1, 3, 2)
    assert not compare(maps, turned).within(USUAL)
    assert compare(maps, turned).worst_centred == pytest.approx(
        compare(maps.reshape(6, -1), turned.reshape(6, -1)).worst_centred, abs=1e-6
    )


class Slow(Wrong):
    """Gives the right features, late."""

    def encode(self, pixels_nhwc: Pixels) -> Features:
        time.sleep(0.1)
        return self.inner.encode(pixels_nhwc)


def test_slower_engine_is_used_only_if_wanted(reference: TorchEngine, sample: Pixels) -> None:
    slow = [Candidate("slow:f32", lambda: Slow(reference, ""))]
    engine, choice = choose_engine(reference, slow, sample, even_slower=False)
    assert engine is reference
    assert "slow:f32" in choice.reason
    assert choose_engine(reference, slow, sample)[1].value == "slow:f32"
