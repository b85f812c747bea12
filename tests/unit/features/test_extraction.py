"""The frozen part at any cut, through the job machinery: kept once, its cost told beforehand, and the same by every route."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from errors import refused
from unchoke.core.choices import Choice
from unchoke.core.events import Chosen, Event
from unchoke.core.fingerprint import digest_file
from unchoke.features.cut import cut_network, frozen_part
from unchoke.features.encoders import load_encoder
from unchoke.features.engines import TorchEngine
from unchoke.features.extraction import PictureExtraction, extract_features, job_size, tell_cost
from unchoke.features.extractor import load_views
from unchoke.features.prepare_engine import Picture, prepare_encoder
from unchoke.features.recipe import PictureRecipe
from unchoke.pixels.tile_grid import TilePlan
from unchoke.runs.session import Session, open_session

TINY = "test_resnet"


class Desk:
    """Extracts in one workspace and keeps what was told."""

    def __init__(self, photos: Path, out: Path, weights: Path) -> None:
        self.photos, self.out, self.weights = photos, out, weights
        files = sorted(photos.rglob("*.jpg"))[::6]
        self.pictures = [Picture(file.stem, str(file), digest_file(file)) for file in files]
        self.events: list[Event] = []

    @contextmanager
    def session(self, **options: Any) -> Iterator[Session]:
        self.events.clear()
        typed = {"data": str(self.photos), "encoder": TINY, "weights": str(self.weights), "workers": 1, "engine": "torch"}
        with open_session({**typed, "precision": "f32", **options}, out=self.out, on_event=self.events.append) as session:
            yield session

    def extract(self, **options: Any) -> PictureExtraction:
        with self.session(**options) as session:
            return extract_features(session, self.pictures)

    def chosen(self, name: str) -> Choice:
        return next(event.choice for event in self.events if isinstance(event, Chosen) and event.choice.name == name)

    def rows(self, extracted: PictureExtraction) -> np.ndarray:
        return extracted.store.all_views(np.arange(len(self.pictures), dtype=np.int64))


@pytest.fixture
def desk(photos: Path, tiny_weights: Path, tmp_path: Path) -> Desk:
    return Desk(photos, tmp_path / "out", tiny_weights)


@pytest.mark.parametrize("cut", ["-1", "-2"])
def test_activations_are_cached_and_the_suffix_goes_on(desk: Desk, cut: str) -> None:
    extracted = desk.extract(cut=cut)
    assert extracted.present.all()
    assert extracted.store.row_shape == extracted.recipe.row_shape
    assert (extracted.store.row_shape[0], len(extracted.store.row_shape)) == (1, 4)
    plain = PictureRecipe(extracted.encoder.spec, "torch", "f32")
    pixels = np.stack([load_views(picture.path, "", "", plain)[0] for picture in desk.pictures])
    parts = cut_network(extracted.encoder, cut)
    engine = TorchEngine(frozen_part(extracted.encoder, parts), device=torch.device("cpu"), batch=16)
    rows = desk.rows(extracted)[:, 0, 0]
    np.testing.assert_allclose(rows, engine.encode(pixels).astype(np.float16), rtol=1e-2, atol=1e-3)
    with torch.inference_mode():
        pooled = parts.suffix(torch.from_numpy(rows).float())
    whole = TorchEngine(extracted.encoder, device=torch.device("cpu"), batch=16).encode(pixels)
    np.testing.assert_allclose(pooled.numpy(), whole, rtol=0.02, atol=0.005)


def test_a_second_run_finds_everything_there_and_says_so(desk: Desk) -> None:
    first = desk.extract(cut="-1", streams=2, tiles="1x2", views=1)
    assert desk.chosen("feature_cache").evidence["pending_bytes"] > 0
    second = desk.extract(cut="-1", streams=2, tiles="1x2", views=1)
    assert (first.num_items_run, second.num_items_run, second.num_jobs_run) == (len(desk.pictures), 0, 0)
    assert desk.chosen("feature_cache").evidence["pending_bytes"] == 0
    assert np.array_equal(desk.rows(first), desk.rows(second))


def test_what_the_cache_costs_is_told_and_true(desk: Desk) -> None:
    extracted = desk.extract(cut="-1", streams=2, tiles="2x1", views=2)
    cost = desk.chosen("feature_cache")
    per_image = cost.evidence["image_bytes"]
    assert per_image == 2 * 3 * 4 * int(np.prod(extracted.recipe.input_shape))
    assert cost.evidence["total_bytes"] == per_image * len(desk.pictures)
    assert cost.value.endswith("kB per image")
    assert all(part in cost.reason for part in ("float16", "test_resnet", "-1", "4 tiles", "3 views"))
    written = sum(shard.stat().st_size for shard in extracted.placement.shards)
    assert cost.evidence["total_bytes"] < written < 1.05 * cost.evidence["total_bytes"]


def test_a_cache_that_does_not_fit_is_refused_with_numbers(desk: Desk) -> None:
    with desk.session(cut="-1") as session:
        recipe = prepare_encoder(session, desk.pictures).recipe(0)
        tell_cost(session, recipe, num_items=10**12, num_pending=0)
        with refused("disk-too-small") as caught:
            tell_cost(session, recipe, num_items=10**12, num_pending=10**12)
    assert "1,000,000,000,000 images" in caught.value.why
    assert "1.1 GB" in caught.value.why
    assert "--cut none" in caught.value.try_


def test_plain_vectors_are_cached_as_before(desk: Desk) -> None:
    extracted = desk.extract(cut="end")
    assert extracted.store.row_shape == (extracted.recipe.encoder.dim,)
    with np.load(extracted.placement.shards[0]) as shard:
        assert list(shard) == ["global_pool", "sample_id"]
    assert not any(isinstance(event, Chosen) and event.choice.name == "feature_cache" for event in desk.events)


def test_tiles_at_the_end_are_a_vector_each(desk: Desk) -> None:
    extracted = desk.extract(streams=2, tiles="2x2")
    assert extracted.store.row_shape == (8, extracted.recipe.encoder.dim)
    with np.load(extracted.placement.shards[0]) as shard:
        assert list(shard) == ["activations", "sample_id"]


def test_cuts_and_tiles_never_share_a_cache(desk: Desk) -> None:
    ways: list[dict[str, Any]] = [{}, {"cut": "-1"}, {"cut": "-2"}, {"tiles": "1x2"}, {"streams": 2}, {"input_px": 96}]
    found = [desk.extract(**way) for way in ways]
    assert len({extracted.recipe.folder for extracted in found}) == len(ways)
    assert all(extracted.num_items_run == len(desk.pictures) for extracted in found)
    chosen = json.loads((desk.out / "engines" / "choice.json").read_text())
    assert len(chosen) == 4  # one for each network; tiles are shown to the same one


def test_worker_processes_write_the_same_bytes_as_this_one(desk: Desk, tmp_path: Path) -> None:
    here = desk.extract(cut="-2", tiles="1x2", job_size=3, input_px=96)
    desk.out = tmp_path / "others"
    there = desk.extract(cut="-2", tiles="1x2", job_size=3, input_px=96, workers=2)
    assert there.num_jobs_run > 2
    pairs = zip(here.placement.shards, there.placement.shards, strict=True)
    assert all(np.array_equal(np.load(one)["activations"], np.load(two)["activations"]) for one, two in pairs)


def test_openvino_runs_the_prefix_where_it_agrees(desk: Desk) -> None:
    plain = desk.extract(cut="-2")
    torch.set_num_threads(2)
    fast = desk.extract(cut="-2", engine="openvino", precision="f32")
    left = torch.get_num_threads()
    torch.set_num_threads(1)
    assert left == 2, "as many as training counts on"
    assert fast.engine["engine"] == "openvino"
    np.testing.assert_allclose(desk.rows(fast).astype(np.float32), desk.rows(plain), rtol=1e-2, atol=2e-3)


def test_none_has_nothing_to_extract(desk: Desk) -> None:
    with refused("nothing-to-extract", "--cut none"):
        desk.extract(cut="none")


def test_too_many_blocks_are_refused_first(desk: Desk) -> None:
    with refused("cut-too-deep", "test_resnet"):
        desk.extract(cut="-9")
    assert not (desk.out / "features" / "jobs_queue.csv").exists()


def test_job_is_no_larger_than_a_shard_in_memory(desk: Desk) -> None:
    spec = load_encoder(TINY, weights=desk.weights).spec
    large = PictureRecipe(spec, "torch", "f32", 0, "-1", TilePlan(2, 2, 2), shape=(1370, 768))
    with desk.session() as session:
        assert job_size(session, large) == 64_000_000 // (8 * 1370 * 768 * 2) == 3
        assert job_size(session, replace(large, tiles=TilePlan(), shape=(192, 7, 7))) == 64
        assert job_size(session, replace(large, tiles=TilePlan(4, 8, 8))) == 1
