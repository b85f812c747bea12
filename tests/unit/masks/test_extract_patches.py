"""The body of an extraction job: the right rows in the right members, and scenes that break are left out with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from unchoke.core.boxes import Box
from unchoke.features.pyramid import PyramidSpec, TorchPyramidEngine, load_pyramid
from unchoke.jobs.job_plan import Job
from unchoke.masks.dihedral import turn
from unchoke.masks.extract_patches import PyramidExtractor
from unchoke.masks.patches import Patch
from unchoke.scenes.scene_facts import SceneError

pytestmark = pytest.mark.usefixtures("one_torch_thread")

PX = 32


class FakeReader:
    """Patches that differ by their place; the scene `gone` cannot be read."""

    def read(self, scene_id: str, box: Box) -> tuple[np.ndarray, np.ndarray]:
        if scene_id == "gone":
            raise SceneError("gone.tif is no longer there", why="it was deleted", try_="put it back", path="gone.tif")
        random = np.random.default_rng(box.top)
        return random.normal(size=(2, PX, PX)).astype(np.float16), np.ones((PX, PX), bool)


@pytest.fixture(scope="module")
def pyramid(tiny_weights: Path) -> tuple[torch.nn.Module, PyramidSpec]:
    return load_pyramid("test_resnet", weights=tiny_weights, num_bands=2, patch_px=PX, strides=(4, 8))


def patches(scene_ids: list[str]) -> dict[str, Patch]:
    found = [Patch(f"{scene}_r{n * PX}_c0", scene, Box(n * PX, 0, PX, PX)) for n, scene in enumerate(scene_ids)]
    return {patch.patch_id: patch for patch in found}


def run(
    pyramid: tuple[torch.nn.Module, PyramidSpec], folder: Path, known: dict[str, Patch], items: list[str], **options: int
) -> tuple[tuple[tuple[str, str], ...], dict[str, np.ndarray]]:
    engine = TorchPyramidEngine(*pyramid, device=torch.device("cpu"), batch=4)
    extractor = PyramidExtractor(engine, pyramid[1], FakeReader(), known, folder, **options)  # type: ignore[arg-type]
    job = Job("j-00000", 0, len(items) - 1, tuple(items), "inputs", "a/img.npz", tuple("" for _ in items))
    result = extractor(job)
    assert result.num_items == len(items) and result.size_bytes == (folder / "a/img.npz").stat().st_size
    with np.load(folder / "a/img.npz") as shard:
        return result.failed_items, dict(shard)


def maps(pyramid: tuple[torch.nn.Module, PyramidSpec], pixels: np.ndarray) -> list[np.ndarray]:
    with torch.inference_mode():
        return [level[0].numpy() for level in pyramid[0](torch.from_numpy(np.ascontiguousarray(pixels[None])).float())]


def test_each_patch_and_view_has_its_maps(pyramid: tuple[torch.nn.Module, PyramidSpec], tmp_path: Path) -> None:
    known = patches(["a"] * 3)
    failed, shard = run(pyramid, tmp_path, known, list(known), num_augmented=5)
    assert not failed and shard["sample_id"].tolist() == list(known)
    for number, patch in enumerate(known.values()):
        pixels, _ = FakeReader().read("a", patch.box)
        for view, prefix in ((0, ""), (1, "view1_"), (5, "view5_")):
            for stride, level in zip((4, 8), maps(pyramid, turn(pixels, view)), strict=True):
                assert np.allclose(shard[f"{prefix}stride_{stride}"][number], level, rtol=2e-3, atol=2e-3)


def test_patches_of_a_broken_scene_are_left_out_with_the_reason(
    pyramid: tuple[torch.nn.Module, PyramidSpec], tmp_path: Path
) -> None:
    known = patches(["a", "gone", "b"])
    failed, shard = run(pyramid, tmp_path, known, [*known, "unknown_r0_c0"], read_threads=2)
    assert dict(failed) == {
        "gone_r32_c0": "gone.tif is no longer there: it was deleted",
        "unknown_r0_c0": "it is no longer among the patches",
    }
    assert shard["sample_id"].tolist() == ["a_r0_c0", "b_r64_c0"]
    assert shard["stride_4"].shape[0] == 2


def test_reading_ahead_in_threads_changes_no_byte(pyramid: tuple[torch.nn.Module, PyramidSpec], tmp_path: Path) -> None:
    known = patches(["a"] * 7)
    for threads in (0, 3):
        run(pyramid, tmp_path / str(threads), known, list(known), read_threads=threads)
    assert (tmp_path / "0/a/img.npz").read_bytes() == (tmp_path / "3/a/img.npz").read_bytes()


def test_a_job_of_which_nothing_can_be_read_gives_an_empty_shard(
    pyramid: tuple[torch.nn.Module, PyramidSpec], tmp_path: Path
) -> None:
    known = patches(["gone"])
    failed, shard = run(pyramid, tmp_path, known, list(known))
    assert len(failed) == 1 and shard["stride_8"].shape[0] == 0
