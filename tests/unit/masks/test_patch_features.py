"""Scenes to labelled patches and their cached pyramids, through the job machinery, with files that break on the way."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
import torch
from PIL import Image
from rasterio import Affine

from errors import refused
from unchoke.core.boxes import Box
from unchoke.core.choices import Choice
from unchoke.core.events import Chosen, Event, Note
from unchoke.features.engines import TorchEngine
from unchoke.features.extraction import Extraction
from unchoke.features.extractor import Extractor
from unchoke.features.pyramid import Pyramid, load_pyramid
from unchoke.features.recipe import PatchRecipe
from unchoke.jobs.job_plan import Job
from unchoke.masks.patch_features import PatchInputs, extract_pyramids
from unchoke.masks.patches import Patch, turn
from unchoke.masks.prepare_patches import READING, PatchMaterial, prepare_patches
from unchoke.runs.session import Session, open_session
from unchoke.scenes.scene_facts import SceneError

if TYPE_CHECKING:
    from conftest import Once

pytestmark = pytest.mark.usefixtures("one_torch_thread")

TINY = "test_resnet"
HEIGHT, WIDTH = 48, 72
NUM_SCENES = 7


def write_raster(file: Path, values: np.ndarray, *, east: float, **profile: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    height, width = values.shape
    place = {"crs": "EPSG:32633", "transform": Affine(10, 0, east, 0, -10, 5e6)}
    with rasterio.open(
        file, "w", driver="GTiff", height=height, width=width, count=1, dtype=values.dtype, **place, **profile
    ) as raster:
        raster.write(values, 1)


def make_scenes(folder: Path) -> Path:
    """Seven scenes of two bands side by side on the map; a bright disc in each is class 1, the outermost columns unlabelled."""
    for number in range(NUM_SCENES):
        random = np.random.default_rng(number)
        rows, columns = np.mgrid[:HEIGHT, :WIDTH]
        disc = np.hypot(rows - random.uniform(15, 30), columns - random.uniform(20, 50)) < 14
        east = 5e5 + number * WIDTH * 20
        for band, gain in (("B2", 900), ("B3", -300)):
            values = 1000 + gain * disc + random.integers(0, 200, disc.shape)
            write_raster(
                folder / "scenes" / f"s{number}" / f"s{number}_{band}.tif", values.astype(np.uint16), east=east, nodata=0
            )
        label = disc.astype(np.uint8)
        label[:, 64:] = 9
        write_raster(folder / "labels" / f"s{number}.tif", label, east=east)
    return folder


@pytest.fixture(scope="session")
def shared_scenes(once: Once) -> Path:
    """Shared: to be read only."""
    return once("masks-scenes", make_scenes)


class Desk:
    """Prepares and extracts in one workspace and keeps what was told."""

    def __init__(self, data: Path, out: Path, weights: Path) -> None:
        self.data, self.out, self.weights = data, out, weights
        self.events: list[Event] = []

    @contextmanager
    def session(self, **options: Any) -> Iterator[Session]:
        self.events.clear()
        typed: dict[str, Any] = {
            "data": str(self.data / "scenes"),
            "label": str(self.data / "labels"),
            "ignore": 9,
            "encoder": TINY,
            "weights": str(self.weights),
            "strides": "4,8",
            "patch_size": 32,
            "overlap": 8,
            "job_size": 8,
            "workers": 1,
            "engine": "torch",
            "precision": "f32",
        }
        given = {name: value for name, value in {**typed, **options}.items() if value is not None}
        with open_session(given, out=self.out, on_event=self.events.append, remembering=False) as session:
            yield session

    def prepare(self, **options: Any) -> PatchMaterial:
        with self.session(**options) as session:
            return prepare_patches(session)

    def extract(self, **options: Any) -> tuple[PatchMaterial, Extraction]:
        with self.session(**options) as session:
            material = prepare_patches(session)
            return material, extract_pyramids(session, material)

    def choice(self, name: str) -> Choice:
        return next(event.choice for event in self.events if isinstance(event, Chosen) and event.choice.name == name)

    def warnings(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, Note) and event.level == "warning")


@pytest.fixture
def desk(shared_scenes: Path, tmp_path: Path, tiny_weights: Path) -> Desk:
    return Desk(shared_scenes, tmp_path / "out", tiny_weights)


@pytest.fixture
def own_desk(shared_scenes: Path, tmp_path: Path, tiny_weights: Path) -> Desk:
    """With scenes that a test may change."""
    return Desk(Path(shutil.copytree(shared_scenes, tmp_path / "data")), tmp_path / "out", tiny_weights)


@pytest.fixture(scope="session")
def extracted(once: Once, shared_scenes: Path, tiny_weights: Path) -> Path:
    """`out`: a workspace with all features in three views; `first.json`: what the run that made them returned. Shared."""

    def build(folder: Path) -> None:
        material, features = Desk(shared_scenes, folder / "out", tiny_weights).extract(views=2)
        first = {"num_items_run": features.num_items_run, "digest": material.digest, "manifest": material.manifest.name}
        (folder / "first.json").write_text(json.dumps(first))

    return once("masks-extracted", build)


@pytest.fixture
def first(extracted: Path, tmp_path: Path) -> dict[str, Any]:
    """What the first run returned, in whose workspace a desk goes on."""
    shutil.copytree(extracted / "out", tmp_path / "out")
    found: dict[str, Any] = json.loads((extracted / "first.json").read_text())
    return found


def shards(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "features").rglob("*.npz"))}


def everywhere(material: PatchMaterial) -> np.ndarray:
    return np.arange(len(material.patches))


def test_patches_have_splits_masks_and_class_names(desk: Desk) -> None:
    material = desk.prepare()
    assert material.class_names == ("class 0", "class 1")
    assert material.band_names == ("B2", "B3")
    assert {patch.split for patch in material.patches} == {"train", "val", "test"}
    sides = {(patch.scene_id, patch.split) for patch in material.patches}
    assert len(sides) == NUM_SCENES, "whole scenes go to one side"
    masks = material.arrays.masks(everywhere(material))
    for patch, mask in zip(material.patches, masks, strict=True):
        assert np.array_equal(mask, material.reader.mask(patch.scene_id, patch.box))
    assert set(np.unique(masks)) == {0, 1, 255}


def test_bands_are_standardised_by_the_patches_that_train(desk: Desk) -> None:
    material = desk.prepare()
    train = [patch for patch in material.patches if patch.split == "train"]
    read = [material.reader.read(patch.scene_id, patch.box) for patch in train]
    values = np.concatenate([pixels[:, valid] for pixels, valid in read], axis=1).astype(np.float64)
    assert values.mean(axis=1) == pytest.approx([0, 0], abs=5e-3)
    assert values.std(axis=1) == pytest.approx([1, 1], abs=5e-3)


def test_rows_are_maps_manifest_has_places(desk: Desk, first: dict[str, Any]) -> None:
    material, features = desk.extract(views=2)
    assert first["num_items_run"] == len(material.patches) == features.store.num_samples
    position = len(material.patches) // 2
    patch = material.patches[position]
    pixels, _ = material.reader.read(patch.scene_id, patch.box)
    for view in range(3):
        row = features.encode_engine.encode(np.ascontiguousarray(turn(pixels, view)[None]))[0]
        assert np.array_equal(features.store.rows(np.array([position]), view)[0], row.astype(np.float16))
    with material.manifest.open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert [row["patch_id"] for row in rows] == [patch.patch_id for patch in material.patches]
    assert material.manifest.name == "patch_manifest.v001.csv"
    with np.load(desk.out / rows[position]["features_path"]) as shard:
        assert patch.patch_id in shard["sample_id"]
    assert TINY in desk.choice("feature_cache").reason


def test_second_run_encodes_only_lost_job(desk: Desk, first: dict[str, Any]) -> None:
    before = shards(desk.out)
    second, features = desk.extract(views=2)
    assert (features.num_items_run, second.digest, second.manifest.name) == (0, first["digest"], first["manifest"])
    next(iter(sorted((desk.out / "features").glob("*.done")))).unlink()
    third, features = desk.extract(views=2)
    assert 0 < features.num_items_run <= 8 < len(third.patches)
    assert shards(desk.out) == before


def test_new_labels_leave_the_features_as_they_are(own_desk: Desk, first: dict[str, Any]) -> None:
    label = own_desk.data / "labels" / "s0.tif"
    changed = np.zeros((HEIGHT, WIDTH), np.uint8)
    changed[:20] = 1
    with rasterio.open(label, "r+") as raster:
        raster.write(changed, 1)
    second, features = own_desk.extract(views=2)
    assert features.num_items_run <= 3, "only the patches that had no label before"
    assert second.digest != first["digest"]


def test_pixels_kept_for_whole_network(desk: Desk) -> None:
    material = desk.prepare(cut="none")
    pixels = material.arrays.pixels(np.array([3]))
    patch = material.patches[3]
    assert np.array_equal(pixels[0], material.reader.read(patch.scene_id, patch.box)[0])
    assert material.manifest.name == "patch_manifest.v001.csv"
    written = {file: file.stat().st_mtime_ns for file in desk.out.rglob("pixels-*.npy")}
    assert len(written) == 1 and desk.choice("pixel_cache").evidence["total_bytes"] > 0
    desk.prepare(cut="none")
    assert {file: file.stat().st_mtime_ns for file in written} == written, "all of it was there already"


def test_a_truncated_band_is_named_and_the_others_go_on(own_desk: Desk) -> None:
    file = own_desk.data / "scenes" / "s3" / "s3_B3.tif"
    file.write_bytes(file.read_bytes()[:-3000])
    material = own_desk.prepare()
    assert {patch.scene_id for patch in material.patches} == {f"s{number}" for number in range(NUM_SCENES) if number != 3}
    assert [entry.sample_id for entry in material.quarantined] == ["s3"]
    assert "s3_B3.tif" in own_desk.warnings()


def test_scene_vanishing_before_features_set_aside(own_desk: Desk) -> None:
    with own_desk.session() as session:
        material = prepare_patches(session)
        gone = next(patch.scene_id for patch in material.patches if patch.split == "train")
        shutil.rmtree(own_desk.data / "scenes" / gone)
        features = extract_pyramids(session, material)
    assert features.store.num_samples == len(material.patches) == material.arrays.num_patches
    assert gone not in {patch.scene_id for patch in material.patches}
    assert gone in {entry.sample_id for entry in material.quarantined} and gone in own_desk.warnings()
    patch = material.patches[-1]
    row = features.encode_engine.encode(material.reader.read(patch.scene_id, patch.box)[0][None])[0]
    assert np.array_equal(features.store.rows(np.array([len(material.patches) - 1]))[0], row.astype(np.float16))


def test_unlabelled_patches_left_out_and_counted(desk: Desk) -> None:
    material = desk.prepare(overlap=0, patch_size=32)
    everything = desk.choice("patches").evidence["unlabelled"] + len(material.patches)
    assert desk.choice("patches").evidence["unlabelled"] == 2 * NUM_SCENES, "the third column lies beyond column 64"
    assert everything == 6 * NUM_SCENES


def test_label_value_without_name_refused(desk: Desk) -> None:
    with refused("label-out-of-range", "scene s", "--ignore 9"):
        desk.prepare(ignore=None, classes="ground,disc")


def test_names_of_classes_are_used_and_must_be_several(desk: Desk) -> None:
    assert desk.prepare(classes="ground,disc").class_names == ("ground", "disc")
    with refused("bad-class-names", "--classes", "1"):
        desk.prepare(classes="ground")


def test_an_expression_labels_background_and_mask(desk: Desk) -> None:
    material = desk.prepare(label=None, ignore=None, mask="B2 > 1500")
    assert material.class_names == ("background", "mask")
    assert material.arrays.counts()[:, :2].sum(axis=0).min() > 0


def test_nothing_to_learn_from_refused(desk: Desk) -> None:
    with refused("no-masks", "--label ", "--mask ", "--polygons "):
        desk.prepare(label=None)


def test_photos_with_drawn_masks_are_scenes_too(desk: Desk, tmp_path: Path) -> None:
    for number in range(6):
        picture = np.random.default_rng(number).integers(0, 255, (40, 60, 3), dtype=np.uint8)
        for folder, pixels, ending in (("photos", picture, "jpg"), ("drawn", picture[..., 0] // 128, "png")):
            (tmp_path / folder).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / folder / f"leaf {number}.{ending}")
    options = {"data": str(tmp_path / "photos"), "label": str(tmp_path / "drawn"), "ignore": None, "patch_size": None}
    material, features = desk.extract(**options, overlap=None, classes="leaf,spot")
    assert material.spec.num_bands == 3 and material.spec.patch_px == 64
    assert len(material.patches) == 6 == features.store.num_samples
    assert material.arrays.counts()[:, 255].tolist() == [64 * 64 - 40 * 60] * 6


def test_small_scenes_are_held_by_one_patch(desk: Desk) -> None:
    material = desk.prepare(patch_size=None, overlap=None)
    assert (material.spec.patch_px, material.overlap_px) == (96, 24)
    assert desk.choice("patch_size").evidence["largest_px"] == 72


def test_one_scene_gets_divisible_patches(desk: Desk, tmp_path: Path) -> None:
    ramp = np.arange(300 * 320).reshape(300, 320)
    write_raster(tmp_path / "one" / "x_B2.tif", (ramp % 250 + 1).astype(np.uint16), east=5e5)
    chosen = []
    for seed in (0, 5):
        material = desk.prepare(
            data=str(tmp_path / "one"), label=None, ignore=None, mask="B2 > 100", patch_size=None, overlap=None, seed=seed
        )
        chosen.append(material.spec.patch_px)
        assert {patch.split for patch in material.patches} == {"train", "val", "test"}
    assert chosen == [64, 64], "the size does not depend on the seed"
    assert "256" in desk.choice("patch_size").evidence["train_share"], "the usual size was considered"


def test_more_overlap_than_patch_is_refused(desk: Desk) -> None:
    with refused("bad-overlap", "32", "--overlap 8"):
        desk.prepare(overlap=32)


def test_more_views_than_there_are_ways_to_turn_are_refused(desk: Desk) -> None:
    with refused("too-many-views", "--views 8", "--views 7"):
        desk.prepare(views=8)


def test_int8_is_refused(desk: Desk) -> None:
    with refused("precision-unsupported", "int8", "f32, bf16, f16"):
        desk.prepare(engine=None, precision="int8")


def test_engine_compared_once_then_kept(desk: Desk) -> None:
    _, features = desk.extract(engine="openvino", precision="f32")
    assert features.engine["engine"] == "openvino"
    compared = desk.choice("engine")
    assert compared.value == "openvino:f32" and compared.evidence["openvino:f32"]["mean_cosine"] > 0.999
    _, features = desk.extract(engine="openvino", precision="f32")
    assert desk.choice("engine").evidence == compared.evidence and compared.reason in desk.choice("engine").reason
    assert features.num_items_run == 0


PX = 32


class FakeReader:
    """Patches that differ by their place; the scene `gone` cannot be read."""

    def read(self, scene_id: str, box: Box) -> tuple[np.ndarray, np.ndarray]:
        if scene_id == "gone":
            gone = {"code": "unreadable-scene", "why": "it was deleted", "try_": "put it back", "path": "gone.tif"}
            raise SceneError("gone.tif is no longer there", **gone)
        random = np.random.default_rng(box.top)
        return random.normal(size=(2, PX, PX)).astype(np.float16), np.ones((PX, PX), bool)


@pytest.fixture(scope="module")
def pyramid(tiny_weights: Path) -> Pyramid:
    return load_pyramid("test_resnet", weights=tiny_weights, num_bands=2, patch_px=PX, strides=(4, 8))


def patches(scene_ids: list[str]) -> dict[str, Patch]:
    found = [Patch(f"{scene}_r{n * PX}_c0", scene, Box(n * PX, 0, PX, PX)) for n, scene in enumerate(scene_ids)]
    return {patch.patch_id: patch for patch in found}


def run(
    pyramid: Pyramid, folder: Path, known: dict[str, Patch], items: list[str], *, num_augmented: int = 0, read_threads: int = 0
) -> tuple[tuple[tuple[str, str], ...], dict[str, np.ndarray]]:
    engine = TorchEngine(pyramid, device=torch.device("cpu"), batch=4)
    recipe = PatchRecipe(pyramid.spec, READING, ("B2", "B3"), {}, "torch", "f32", num_augmented)
    read = PatchInputs(FakeReader(), known, recipe.num_views)  # type: ignore[arg-type]
    extractor = Extractor(engine, recipe, read, folder, read_threads)
    job = Job.of("j-00000", 0, items, [""] * len(items), output="a/img.npz", fingerprint="f")
    result = extractor(job)
    assert result.num_items == len(items) and result.size_bytes == (folder / "a/img.npz").stat().st_size
    with np.load(folder / "a/img.npz") as shard:
        return result.failed_items, dict(shard)


def maps(pyramid: Pyramid, pixels: np.ndarray) -> list[np.ndarray]:
    with torch.inference_mode():
        return [level[0].numpy() for level in pyramid[0](torch.from_numpy(np.ascontiguousarray(pixels[None])).float())]


def test_each_patch_and_view_has_its_maps(pyramid: Pyramid, tmp_path: Path) -> None:
    known = patches(["a"] * 3)
    failed, shard = run(pyramid, tmp_path, known, list(known), num_augmented=5)
    assert not failed and shard["sample_id"].tolist() == list(known)
    for number, patch in enumerate(known.values()):
        pixels, _ = FakeReader().read("a", patch.box)
        for view, prefix in ((0, ""), (1, "view1_"), (5, "view5_")):
            for stride, level in zip((4, 8), maps(pyramid, turn(pixels, view)), strict=True):
                assert np.allclose(shard[f"{prefix}stride_{stride}"][number], level, rtol=2e-3, atol=2e-3)


def test_patches_of_broken_scene_left_out(pyramid: Pyramid, tmp_path: Path) -> None:
    known = patches(["a", "gone", "b"])
    failed, shard = run(pyramid, tmp_path, known, [*known, "unknown_r0_c0"], read_threads=2)
    assert dict(failed).keys() == {"gone_r32_c0", "unknown_r0_c0"}
    assert dict(failed)["gone_r32_c0"] == "gone.tif is no longer there: it was deleted"
    assert shard["sample_id"].tolist() == ["a_r0_c0", "b_r64_c0"]
    assert shard["stride_4"].shape[0] == 2


def test_reading_ahead_in_threads_changes_no_byte(pyramid: Pyramid, tmp_path: Path) -> None:
    known = patches(["a"] * 7)
    for threads in (0, 3):
        run(pyramid, tmp_path / str(threads), known, list(known), read_threads=threads)
    assert (tmp_path / "0/a/img.npz").read_bytes() == (tmp_path / "3/a/img.npz").read_bytes()


def test_unreadable_job_gives_empty_shard(pyramid: Pyramid, tmp_path: Path) -> None:
    known = patches(["gone"])
    failed, shard = run(pyramid, tmp_path, known, list(known))
    assert len(failed) == 1 and shard["stride_8"].shape[0] == 0
