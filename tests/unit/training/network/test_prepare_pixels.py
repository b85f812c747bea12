"""Pixels for training: decoded once, bad files named and set aside, found again by the next run and by other processes."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_process import in_own_process, show_pixels
from PIL import Image

from errors import refused
from unchoke.core.choices import Choice
from unchoke.core.events import Chosen, Event, Progress
from unchoke.core.fingerprint import digest_file
from unchoke.features.engines import FromPixels
from unchoke.features.prepare_engine import Picture
from unchoke.pixels.canvas import Canvas
from unchoke.pixels.image import DecodeError, decode_image
from unchoke.pixels.resize import Preprocess, fit_to_input
from unchoke.pixels.tile_grid import TilePlan, cover_px, cut_tiles
from unchoke.runs.session import Session, open_session
from unchoke.training.network.feeding import feed
from unchoke.training.network.prepare_pixels import (
    PreparedPixels,
    StoredPixels,
    pixel_recipe,
    plan_pixels,
    prepare_pixels,
)

TINY = "test_resnet"
SIZES = [(96, 72), (72, 96), (80, 80), (200, 100), (64, 48), (97, 71), (120, 90), (90, 120)]
NAMES = [f"photo {number}" for number in range(len(SIZES))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight photos of several sizes, lying and standing."""
    place = tmp_path / "photos"
    place.mkdir()
    for number, (width, height) in enumerate(SIZES):
        coarse = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(place / f"photo {number}.jpg", quality=92)
    return place


def found(folder: Path) -> list[Picture]:
    return [Picture(file.stem, str(file), digest_file(file)) for file in sorted(folder.iterdir())]


class Desk:
    """Prepares pixels in one workspace and keeps what was told."""

    def __init__(self, folder: Path, out: Path, weights: Path) -> None:
        self.folder, self.out, self.weights = folder, out, weights
        self.events: list[Event] = []

    @contextmanager
    def session(self, **options: Any) -> Iterator[Session]:
        self.events.clear()
        typed = {"data": str(self.folder), "encoder": TINY, "weights": str(self.weights), "cut": "none", "workers": 2, **options}
        with open_session(typed, out=self.out, on_event=self.events.append) as session:
            yield session

    def prepare(self, pictures: list[Picture] | None = None, **options: Any) -> PreparedPixels:
        with self.session(max_failures=0.5, **options) as session:
            return prepare_pixels(session, found(self.folder) if pictures is None else pictures)

    @property
    def num_decoded(self) -> int:
        return max((event.total for event in self.events if isinstance(event, Progress)), default=0)

    def chosen(self, name: str) -> Any:
        return next(event.choice for event in self.events if isinstance(event, Chosen) and event.choice.name == name)


@pytest.fixture
def desk(folder: Path, tmp_path: Path, tiny_weights: Path) -> Desk:
    return Desk(folder, tmp_path / "out", tiny_weights)


def shown(stored: StoredPixels, ids: list[str], epoch: int | None, seed: int = 0) -> torch.Tensor:
    [fed] = feed(stored.open(ids, seed), [np.arange(len(ids))], epoch=epoch, device=torch.device("cpu"), workers=0)
    return fed.part(0, len(fed))


@pytest.mark.parametrize("mode", ["ram", "disk", "none"])
def test_every_cache_equals_frozen_path(desk: Desk, mode: str) -> None:
    prepared = desk.prepare(cache=mode)
    preprocess = prepared.encoder.spec.preprocess
    pictures = found(desk.folder)
    cover = cover_px(TilePlan(), preprocess)
    pixels = [fit_to_input(decode_image(Path(picture.path).read_bytes(), cover_px=cover), preprocess) for picture in pictures]
    expected = FromPixels(torch.nn.Identity(), preprocess)(torch.from_numpy(np.stack(pixels)))
    ids = [picture.sample_id for picture in pictures]
    assert prepared.present.all()
    assert torch.equal(shown(prepared.source, ids, None)[:, 0], expected)
    assert desk.num_decoded == (0 if mode == "none" else len(SIZES))


def test_the_kind_of_cache_changes_no_bit_of_an_epoch(desk: Desk) -> None:
    ids = NAMES
    epochs = [shown(desk.prepare(cache=mode, augment="strong").source, ids, 3) for mode in ("ram", "disk", "none")]
    assert torch.equal(epochs[0], epochs[1])
    assert torch.equal(epochs[0], epochs[2])


def test_tiles_are_cut_as_for_cached_features(desk: Desk) -> None:
    prepared = desk.prepare(streams=2, tiles="1x2", cache="disk")
    preprocess, plan = prepared.encoder.spec.preprocess, TilePlan(2, 1, 2)
    picture = found(desk.folder)[3]
    image = decode_image(Path(picture.path).read_bytes(), cover_px=cover_px(plan, preprocess))
    tiles = torch.from_numpy(cut_tiles(image, plan, preprocess))
    expected = FromPixels(torch.nn.Identity(), preprocess)(tiles)
    assert torch.equal(shown(prepared.source, [picture.sample_id], None)[0], expected)


def test_a_second_run_finds_everything_and_decodes_nothing(desk: Desk) -> None:
    first = desk.prepare()
    assert desk.chosen("cache").value == "disk"
    before = shown(first.source, NAMES, 1)
    again = desk.prepare()
    assert desk.num_decoded == 0
    shutil.rmtree(desk.folder)  # from here on nothing could be read again
    cache = again.source.open_cache(reader=True)
    cache.rows(range(len(SIZES)))
    assert (cache.misses, cache.hits) == (0, len(SIZES))
    assert torch.equal(shown(again.source, NAMES, 1), before)


def test_undecodable_file_named_and_not_retried(desk: Desk) -> None:
    (desk.folder / "photo 4.jpg").write_bytes(b"\xff\xd8\xff not a photo")
    prepared = desk.prepare()
    assert list(prepared.failed) == ["photo 4"]
    assert prepared.failed["photo 4"].startswith("unreadable: ")
    assert prepared.present.tolist() == [number != 4 for number in range(len(SIZES))]
    again = desk.prepare()
    assert (desk.num_decoded, again.failed) == (0, prepared.failed)
    good = [name for name in NAMES if name != "photo 4"]
    assert shown(again.source, good, 0).shape[0] == len(SIZES) - 1


def test_a_mended_file_is_taken_back(desk: Desk) -> None:
    file = desk.folder / "photo 4.jpg"
    sound = file.read_bytes()
    file.write_bytes(b"\xff\xd8\xff not a photo")
    assert desk.prepare().failed
    file.write_bytes(sound)
    assert desk.prepare().failed == {}
    assert desk.num_decoded == 1
    assert desk.prepare().failed == {}


def test_changed_file_refused_until_planned_anew(desk: Desk) -> None:
    planned = found(desk.folder)
    shutil.copy(desk.folder / "photo 1.jpg", desk.folder / "photo 2.jpg")
    assert desk.prepare(planned).failed == {"photo 2": "changed: the file changed while the command ran; run it again"}
    prepared = desk.prepare()
    assert (desk.num_decoded, prepared.failed) == (1, {})
    one, two = shown(prepared.source, ["photo 1", "photo 2"], None)
    assert torch.equal(one, two)


def test_a_file_that_changes_in_training_stops_it_by_name(desk: Desk) -> None:
    prepared = desk.prepare(cache="none")
    (desk.folder / "photo 5.jpg").write_bytes(b"something else")
    with refused("unreadable-photos", "photo 5"):
        shown(prepared.source, NAMES, 0)


def test_too_many_failures_stop_the_run(desk: Desk) -> None:
    for number in range(3):
        (desk.folder / f"photo {number}.jpg").write_bytes(b"broken")
    with desk.session(max_failures=0.2) as session, refused("too-many-failed", "2 of 8"):
        prepare_pixels(session, found(desk.folder))


def test_another_process_opens_the_same_pixels(desk: Desk) -> None:
    stored = {mode: desk.prepare(cache=mode, augment="light").source for mode in ("ram", "disk")}
    here = shown(stored["ram"], NAMES, 2)
    for mode, misses in (("ram", len(SIZES)), ("disk", 0)):
        there, missed = in_own_process(show_pixels, stored[mode], NAMES, 2)
        assert np.array_equal(there, here.numpy())
        assert missed == misses


def test_readers_work_while_another_holds_the_cache(desk: Desk) -> None:
    prepared = desk.prepare()
    with prepared.source.open_cache() as owner:
        assert owner.num_valid == len(SIZES)
        assert shown(prepared.source, NAMES, 0).shape[0] == len(SIZES)


def test_cache_that_does_not_fit_is_refused(desk: Desk) -> None:
    with desk.session(cache="ram", memory="100KB") as session, refused("cache-does-not-fit", "--cache ram", "8 pictures"):
        prepare_pixels(session, found(desk.folder))


def test_planning_says_what_it_will_cost_and_writes_nothing(desk: Desk) -> None:
    with desk.session() as session:
        from unchoke.features.encoders import load_encoder

        stored = plan_pixels(session, found(desk.folder), load_encoder(TINY, weights=desk.weights))
    height, width = stored.canvas.row_shape
    assert stored.cache.evidence["bytes"] == len(SIZES) * height * width * 3
    assert "8 pictures" in stored.cache.reason
    assert not stored.folder.exists()


def test_augmentation_light_by_default_and_in_key(desk: Desk) -> None:
    light = desk.prepare()
    assert desk.chosen("augment").value == light.source.augment == "light"
    none = desk.prepare(augment="none")
    assert none.source.folder == light.source.folder
    assert none.use.fingerprint != light.use.fingerprint
    assert light.use.fingerprint == desk.prepare(cache="ram").use.fingerprint


PREPROCESS = Preprocess(32, 0.875, "center", "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
CANVAS = Canvas(TilePlan(), PREPROCESS, 48)


def photo(file: Path, seed: int) -> None:
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (50, 60, 3), np.uint8)).save(file)


@pytest.fixture
def stored(tmp_path: Path) -> StoredPixels:
    files = [tmp_path / f"{name}.png" for name in "abc"]
    for seed, file in enumerate(files):
        photo(file, seed)
    height, width = CANVAS.row_shape
    cache = Choice("cache", "ram", "a test", {"capacity_rows": 3, "bytes": 3 * height * width * 3})
    return StoredPixels(
        tuple("abc"), tuple(str(file) for file in files), tuple(digest_file(file) for file in files), CANVAS, cache, tmp_path
    )


def test_samples_are_read_in_the_order_asked_for(stored: StoredPixels) -> None:
    source = stored.open(["c", "a"], seed=0)
    raw = source.read(np.array([0, 1]), None)
    assert np.array_equal(raw.numpy(), CANVAS.inputs(np.stack([stored.draw(2), stored.draw(0)])))


def test_a_file_with_other_content_than_planned_is_refused(stored: StoredPixels) -> None:
    photo(Path(stored.paths[1]), 9)
    with pytest.raises(DecodeError, match="changed"):
        stored.draw(1)
    assert replace(stored, contents=("", "", "")).draw(1).shape == (*CANVAS.row_shape, 3)


def test_pixels_in_memory_are_not_pickled(stored: StoredPixels) -> None:
    here = replace(stored, filled=stored.open_cache())
    there = pickle.loads(pickle.dumps(here))
    assert there.filled is None
    assert here.filled is not None
    assert there.canvas == here.canvas
    one, other = here.open(["b"], 0), there.open(["b"], 0)
    assert np.array_equal(one.read(np.array([0]), None), other.read(np.array([0]), None))
    assert (stored.ram_bytes, replace(stored, cache=replace(stored.cache, value="disk")).ram_bytes) == (3 * 37 * 48 * 3, 0)


def test_change_by_size_and_time_without_content(stored: StoredPixels) -> None:
    on_disk = replace(stored, contents=("", "", ""), cache=replace(stored.cache, value="disk"), folder=stored.folder / "pixels")
    with on_disk.open_cache() as cache:
        cache.rows(range(3))
    os.utime(stored.paths[0], ns=(1, 1))
    Path(stored.paths[2]).unlink()
    with on_disk.open_cache() as cache:
        assert cache.missing().tolist() == [0, 2]
        with pytest.raises(DecodeError, match="gone"):
            cache.row(2)


def test_the_recipe_changes_with_what_is_drawn() -> None:
    assert pixel_recipe(CANVAS) == pixel_recipe(Canvas(TilePlan(), PREPROCESS, 48))
    assert pixel_recipe(CANVAS) != pixel_recipe(Canvas(TilePlan(), PREPROCESS, 54))
