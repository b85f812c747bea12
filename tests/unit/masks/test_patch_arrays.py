"""Masks and pixels of patches in files: whole or not there, the same bytes every time."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unchoke.core.boxes import Box
from unchoke.masks.patch_arrays import PatchArrays, build_masks, build_rows, holds
from unchoke.masks.patches import Patch
from unchoke.scenes.scene_facts import SceneError

PX = 8
PATCHES = [Patch(f"{scene}_r{top}_c0", scene, Box(top, 0, PX, PX)) for scene in ("a", "b") for top in (0, 8, 16)]
KEY = "0123456789abcdef"


def mask_of(patch: Patch) -> np.ndarray:
    mask = np.full((PX, PX), patch.box.top // 8, np.uint8)
    mask[0] = 255 if patch.scene_id == "a" else 1
    return mask


def build(folder: Path, read: Callable[[Patch], np.ndarray] = mask_of, key: str = KEY) -> tuple[PatchArrays, dict[str, str]]:
    return build_masks(folder, PATCHES, read, key=key, patch_px=PX, threads=2)


def test_masks_and_their_counts_come_back_by_position(tmp_path: Path) -> None:
    arrays, failed = build(tmp_path)
    assert not failed and arrays.num_patches == 6
    positions = np.array([4, 0])
    assert np.array_equal(arrays.masks(positions), [mask_of(PATCHES[4]), mask_of(PATCHES[0])])
    assert arrays.counts(positions)[:, [0, 1, 255]].tolist() == [[0, 64, 0], [56, 0, 8]]
    assert arrays.counts().sum() == 6 * PX * PX
    assert np.load(tmp_path / "masks-01234567.npy").shape == (6, PX, PX)


def test_what_is_there_is_not_read_again(tmp_path: Path) -> None:
    build(tmp_path)

    def never(patch: Patch) -> np.ndarray:
        raise AssertionError("read again")

    arrays, _ = build(tmp_path, never)
    assert np.array_equal(arrays.masks(np.array([5]))[0], mask_of(PATCHES[5]))


def test_another_digest_is_another_file(tmp_path: Path) -> None:
    build(tmp_path)
    build(tmp_path, key="f" * 16)
    assert (tmp_path / "masks-01234567.npy").read_bytes() == (tmp_path / "masks-ffffffff.npy").read_bytes()


def test_stopped_build_restarts_same_bytes(tmp_path: Path) -> None:
    build(tmp_path / "whole")

    def stopped(patch: Patch) -> np.ndarray:
        if patch == PATCHES[4]:
            raise KeyboardInterrupt
        return mask_of(patch)

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "again", stopped)
    assert not holds(tmp_path / "again", "masks", KEY)
    build(tmp_path / "again")
    for name in ("masks-01234567.npy", "masks-01234567-counts.npy", "masks-01234567.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_broken_scene_named_and_tried_again(tmp_path: Path) -> None:
    def broken(patch: Patch) -> np.ndarray:
        if patch.patch_id == "a_r8_c0":
            raise SceneError(
                "a.tif is cut short", code="unreadable-scene", why="it ends early", try_="copy it again", path="a.tif"
            )
        return mask_of(patch)

    arrays, failed = build(tmp_path, broken)
    assert failed == {"a": "a.tif is cut short: it ends early"}
    assert (arrays.masks(np.array([1])) == 255).all()
    assert np.array_equal(arrays.masks(np.array([3]))[0], mask_of(PATCHES[3]))
    arrays, failed = build(tmp_path)
    assert not failed
    assert np.array_equal(arrays.masks(np.array([1]))[0], mask_of(PATCHES[1]))


def test_patches_can_be_left_out_without_copying_files(tmp_path: Path) -> None:
    arrays, _ = build(tmp_path)
    few = arrays.keep(np.array([5, 2, 1])).keep(np.array([0, 2]))
    assert few.num_patches == 2
    assert np.array_equal(few.masks(np.array([0, 1])), arrays.masks(np.array([5, 1])))
    assert np.array_equal(few.counts(), arrays.counts(np.array([5, 1])))


def test_arrays_travel_as_paths(tmp_path: Path) -> None:
    arrays, _ = build(tmp_path)
    arrays.masks(np.array([0]))
    packed = pickle.dumps(arrays)
    assert len(packed) < 2000
    assert np.array_equal(pickle.loads(packed).masks(np.array([4])), arrays.masks(np.array([4])))


def test_pixels_are_kept_beside_them_and_put_where_asked(tmp_path: Path) -> None:
    def pixels_of(patch: Patch) -> np.ndarray:
        return np.full((2, PX, PX), patch.box.top, np.float16)

    shape, blank = (2, PX, PX), np.float16(0)
    rows, failed = build_rows(tmp_path, "pixels", PATCHES, pixels_of, key=KEY, shape=shape, blank=blank, threads=0)
    masks, _ = build(tmp_path)
    arrays = PatchArrays(masks.mask_rows, masks.count_rows, rows)
    out = np.zeros((2, 2, PX, PX), np.float16)
    assert arrays.pixels(np.array([1, 2]), out=out) is out
    assert not failed and out[:, 0, 0, 0].tolist() == [8.0, 16.0]
    assert holds(tmp_path, "pixels", KEY) and not holds(tmp_path, "pixels", "e" * 16)
