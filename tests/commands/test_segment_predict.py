"""Masks of whole scenes: what the network says, blended, in its place on the map; gone on with, never made twice."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import rasterio

import mask_run
from errors import refused
from unchoke.core.events import Event, Note, Progress, ignore
from unchoke.machine.memory.memory_watch import own_bytes
from unchoke.masks.segment_predict import segment_predict

if TYPE_CHECKING:
    from tests.conftest import Once


@pytest.fixture(scope="session")
def run(once: Once) -> Path:
    return once("commands-mask-runs", lambda folder: mask_run.make_run(folder / "exp_1")) / "exp_1"


@pytest.fixture(scope="session")
def scenes(once: Once) -> Path:
    def build(folder: Path) -> None:
        mask_run.make_scene(folder / "north.tif")
        mask_run.make_scene(folder / "south.tif", seed=1, height=600, width=100)

    return once("commands-mask-places", build)


@pytest.fixture(scope="session")
def masks(run: Path, scenes: Path, once: Once) -> Path:
    """What an undisturbed command gives. Shared: to be read only."""

    def build(folder: Path) -> None:
        found = segment_predict(run, scenes, to=folder / "masks", on_event=ignore)
        assert found.ok
        assert [(mask["scene"], mask["skipped"]) for mask in found.masks] == [("north", False), ("south", False)]

    return once("commands-drawn-masks", build) / "masks"


def artefacts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


def test_a_mask_is_what_the_network_says_blended(run: Path, scenes: Path, masks: Path) -> None:
    import torch

    from unchoke.masks.patches import PatchReader
    from unchoke.masks.stitch import plan_stitch
    from unchoke.masks.trained_segmenter import load_segmenter
    from unchoke.scenes.handles import HandlePool
    from unchoke.scenes.open_scenes import inspect_scene
    from unchoke.scenes.scale import measure_scale
    from unchoke.scenes.scan_scenes import scan_scenes

    pool, trained = HandlePool(), load_segmenter(run)
    facts = inspect_scene(scan_scenes(scenes).scenes[0], pool=pool)
    scales = {"north": measure_scale(facts, "none", pool=pool)}
    reader = PatchReader({"north": facts}, pool=pool, scales=scales, standard=trained.standard)
    predict = trained.predictor(torch.device("cpu"), 8)
    plan = plan_stitch(150, 220, patch_px=64, overlap_px=16, num_classes=3)
    values = mask_run.stitch_in_ram(
        plan, lambda boxes: predict(np.stack([reader.read("north", box)[0] for box in boxes])), batch=8
    )
    valid = mask_run.read(scenes / "north.tif").all(axis=0)
    pool.close()
    found = mask_run.read(masks / "north_classes.tif")[0]
    assert (found[~valid] == 255).all()
    assert (found == values.argmax(axis=0))[valid].mean() > 0.999
    assert len(np.unique(found[valid])) > 1
    probabilities = mask_run.read(masks / "north_probabilities.tif")
    np.testing.assert_allclose(probabilities[:, valid] / 254, values[:, valid], atol=0.5 / 254 + 1e-3)
    assert (probabilities[:, ~valid] == 255).all()


def test_masks_lie_where_their_scenes_lie(scenes: Path, masks: Path) -> None:
    for name in ("north", "south"):
        with rasterio.open(scenes / f"{name}.tif") as scene, rasterio.open(masks / f"{name}_classes.tif") as mask:
            assert (mask.crs, mask.transform, mask.bounds, mask.shape) == (scene.crs, scene.transform, scene.bounds, scene.shape)
            assert mask.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"


def test_run_again_touches_nothing_and_gives_the_shares(masks: Path, run: Path, scenes: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(masks, tmp_path / "masks"))
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.suffix == ".tif"}
    events: list[Event] = []
    found = segment_predict(run, scenes, to=folder, on_event=events.append)
    assert all(mask["skipped"] for mask in found.masks)
    classes, north = mask_run.read(folder / "north_classes.tif"), found.masks[0]
    assert list(north["shares"]) == list(mask_run.NAMES)
    assert north["shares"]["cloud"] == pytest.approx((classes == 2).sum() / (classes != 255).sum())
    assert north["pixels_without_class"] == (classes == 255).sum()
    assert not [event for event in events if isinstance(event, Progress)]
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.suffix == ".tif"} == before


def test_damaged_mask_is_made_again_with_the_same_bytes(masks: Path, run: Path, scenes: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(masks, tmp_path / "masks"))
    (folder / "north_classes.tif").write_bytes(b"not a mask")
    found = segment_predict(run, scenes, to=folder, on_event=ignore)
    assert [mask["skipped"] for mask in found.masks] == [False, True]
    assert artefacts(folder) == artefacts(masks)


def test_stopped_it_goes_on_to_the_same_bytes(masks: Path, run: Path, scenes: Path, tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Progress) and event.stage == "predict" and event.done == event.total:
            raise KeyboardInterrupt

    folder = tmp_path / "masks"
    with pytest.raises(KeyboardInterrupt):
        segment_predict(run, scenes, to=folder, on_event=stop)
    assert sorted(artefacts(folder)) == ["SHA256SUMS", "north.json", "north_classes.tif", "north_probabilities.tif"]
    assert len(list((folder / ".unfinished" / "south").glob("part_*"))) == 1
    events: list[Event] = []
    found = segment_predict(run, scenes, to=folder, on_event=events.append)
    assert [mask["skipped"] for mask in found.masks] == [True, False]
    assert any(isinstance(event, Note) and "1 of 2 parts" in event.text for event in events)
    assert found.patches == 6, "only the second part, and the patches that reach into it"
    assert artefacts(folder) == artefacts(masks)
    assert not (folder / ".unfinished").exists()


def test_unreadable_scene_is_named_and_others_done(run: Path, scenes: Path, masks: Path, tmp_path: Path) -> None:
    shutil.copytree(scenes, tmp_path / "scenes")
    whole = (tmp_path / "scenes" / "north.tif").read_bytes()
    (tmp_path / "scenes" / "north.tif").write_bytes(whole[: len(whole) // 2])
    found = segment_predict(run, tmp_path / "scenes", to=tmp_path / "masks", on_event=ignore)
    assert not found.ok
    assert [mask["scene"] for mask in found.masks] == ["south"]
    assert [Path(str(finding.path)).name for finding in found.findings] == ["north.tif"]
    assert "north.tif" in found.to_text()
    south = "south_classes.tif"
    assert (tmp_path / "masks" / south).read_bytes() == (masks / south).read_bytes()


def test_a_scene_that_changed_is_drawn_again(run: Path, tmp_path: Path) -> None:
    scene = mask_run.make_scene(tmp_path / "scenes" / "one.tif", height=70, width=90)
    segment_predict(run, scene.parent, to=tmp_path / "masks", on_event=ignore)
    first = artefacts(tmp_path / "masks")["one_classes.tif"]
    mask_run.make_scene(scene, seed=9, height=70, width=90)
    os.utime(scene, ns=(1, 1))
    found = segment_predict(run, scene.parent, to=tmp_path / "masks", on_event=ignore)
    assert [mask["skipped"] for mask in found.masks] == [False]
    assert artefacts(tmp_path / "masks")["one_classes.tif"] != first


def test_replaced_scene_is_named_and_others_done(run: Path, scenes: Path, tmp_path: Path) -> None:
    shutil.copytree(scenes, tmp_path / "scenes")
    mask_run.make_scene(tmp_path / "scenes" / "west.tif", seed=2, height=40, width=40)

    def replace_south(event: Event) -> None:
        if isinstance(event, Progress) and event.stage == "predict" and event.done <= 8:
            mask_run.make_scene(tmp_path / "scenes" / "south.tif", seed=5, height=601, width=100)

    found = segment_predict(run, tmp_path / "scenes", to=tmp_path / "masks", on_event=replace_south)
    assert not found.ok
    assert [mask["scene"] for mask in found.masks] == ["north", "west"]
    assert [Path(str(finding.path)).name for finding in found.findings] == ["south.tif"]


def test_tiny_and_empty_scenes_have_masks(run: Path, tmp_path: Path) -> None:
    mask_run.make_scene(tmp_path / "scenes" / "dot.tif", height=1, width=1)
    empty = mask_run.make_scene(tmp_path / "scenes" / "empty.tif", height=30, width=40)
    with rasterio.open(empty, "r+") as scene:
        scene.write(np.zeros((3, 30, 40), np.uint16))
    found = segment_predict(run, tmp_path / "scenes", to=tmp_path / "masks", on_event=ignore)
    assert found.ok
    assert mask_run.read(tmp_path / "masks" / "dot_classes.tif").shape == (1, 1, 1)
    assert (mask_run.read(tmp_path / "masks" / "empty_classes.tif") == 255).all()
    assert found.masks[1]["pixels_without_class"] == 1200
    assert set(found.masks[1]["shares"].values()) == {0.0}


def test_a_band_that_a_scene_lacks_is_named(tmp_path: Path, scenes: Path) -> None:
    run = mask_run.make_run(tmp_path / "exp_2", bands=("red", "green", "nir"))
    with refused("no-usable-scene", "nir"):
        segment_predict(run, scenes, to=tmp_path / "masks", on_event=ignore)


def test_photos_get_a_png_and_need_no_place(tmp_path: Path) -> None:
    run = mask_run.make_run(tmp_path / "exp_3", bands=("b1", "b2", "b3"))
    mask_run.make_scene(tmp_path / "photos" / "leaf.png", height=70, width=90)
    found = segment_predict(run, tmp_path / "photos", to=tmp_path / "masks", probabilities=False, on_event=ignore)
    assert found.ok
    assert sorted(artefacts(tmp_path / "masks")) == ["SHA256SUMS", "leaf.json", "leaf_classes.png"]
    assert mask_run.read(tmp_path / "masks" / "leaf_classes.png").shape == (1, 70, 90)
    assert found.masks[0]["probabilities"] is None


def test_a_network_trained_as_a_whole_draws_masks_too(tmp_path: Path, scenes: Path) -> None:
    run = mask_run.make_run(tmp_path / "exp_4", cut="none")
    found = segment_predict(run, scenes / "north.tif", to=tmp_path / "masks", overlap=0, on_event=ignore)
    assert found.patches == 12, "of 64 px without overlap"
    assert sum(found.masks[0]["shares"].values()) == pytest.approx(1)


def test_a_run_that_draws_no_masks_is_refused(tmp_path: Path, scenes: Path) -> None:
    (tmp_path / "exp_5").mkdir()
    (tmp_path / "exp_5" / "record.json").write_text(json.dumps({"run": "exp_5", "task": {"kind": "classification"}}))
    with refused("not-a-mask-run", "exp_5"):
        segment_predict(tmp_path / "exp_5", scenes, to=tmp_path / "masks", on_event=ignore)


def test_an_overlap_of_a_whole_patch_is_refused(run: Path, scenes: Path, tmp_path: Path) -> None:
    with refused("bad-overlap", "64"):
        segment_predict(run, scenes, to=tmp_path / "masks", overlap=64, on_event=ignore)


def test_masks_among_the_scenes_are_refused(run: Path, tmp_path: Path) -> None:
    scene = mask_run.make_scene(tmp_path / "scenes" / "one.tif")
    with refused("workspace-inside-data", str(scene.parent / "masks")):
        segment_predict(run, scene.parent, to=scene.parent / "masks", on_event=ignore)


def test_batch_under_a_limit_is_a_measured_one(run: Path, scenes: Path, tmp_path: Path) -> None:
    limit_bytes = own_bytes() + 3_000_000_000  # what the tests before this one left counts as held, too
    found = segment_predict(run, scenes / "north.tif", to=tmp_path / "masks", memory=str(limit_bytes), on_event=ignore)
    (batch,) = (choice for choice in found.choices if choice.name == "batch")
    assert batch.evidence["limit_bytes"] == limit_bytes
    assert batch.value in [one["batch"] for one in batch.evidence["tried"] if one["peak_bytes"]]
    assert found.memory["limit_bytes"] == limit_bytes
    assert found.memory["measured_bytes"] < limit_bytes


def test_scenes_without_a_place_give_plain_tiffs(run: Path, tmp_path: Path) -> None:
    mask_run.make_scene(tmp_path / "scenes" / "lake.tif", height=70, width=90, on_map=False)
    for skipped in (False, True):
        found = segment_predict(run, tmp_path / "scenes", to=tmp_path / "masks", probabilities=False, on_event=ignore)
        assert found.masks[0]["skipped"] is skipped
    assert sorted(artefacts(tmp_path / "masks")) == ["SHA256SUMS", "lake.json", "lake_classes.tif"]
    assert mask_run.read(tmp_path / "masks" / "lake_classes.tif").shape == (1, 70, 90)
