"""The body of a job: rows in item order, failures named, nothing substituted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from errors import refused
from unchoke.core.fingerprint import digest_file
from unchoke.features.cut import cut_network, frozen_part
from unchoke.features.encoders import Encoder
from unchoke.features.engines import TorchEngine
from unchoke.features.extractor import Extractor, PictureReader, load_views, run_job, set_up
from unchoke.features.feature_store import FeatureOverflow, load_shard_ids, map_member
from unchoke.features.recipe import PictureRecipe
from unchoke.jobs.job_engines import ProcessEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.records import JobResult
from unchoke.pixels.image import read_image
from unchoke.pixels.tile_grid import TilePlan, cut_tiles


def with_contents(job: Job, contents: list[str]) -> Job:
    return Job.of(job.job_id, 0, job.items, contents, output=job.output, fingerprint=job.fingerprint)


@dataclass(frozen=True)
class Scene:
    """Some photos under their ids, and how to make features of them."""

    recipe: PictureRecipe
    engine: TorchEngine
    paths: dict[str, str]
    folder: Path

    def job(self) -> Job:
        contents = [digest_file(Path(path)) for path in self.paths.values()]
        output = self.recipe.output_pattern.format(first=0, last=len(contents) - 1)
        return Job.of("job", 0, list(self.paths), contents, output=output, fingerprint=self.recipe.fingerprint)

    def run(self, job: Job, *, threads: int = 0) -> tuple[JobResult, Path]:
        result = Extractor(self.engine, self.recipe, PictureReader(self.recipe, self.paths), self.folder, threads)(job)
        return result, self.folder / job.output


@pytest.fixture
def scene(tiny: Encoder, own_photos: Path, tmp_path: Path) -> Scene:
    files = sorted(own_photos.rglob("*.jpg"))[::6]
    paths = {file.relative_to(own_photos).as_posix(): str(file) for file in reversed(files)}
    engine = TorchEngine(tiny, device=torch.device("cpu"), batch=4)
    return Scene(PictureRecipe(tiny.spec, "torch", "f32"), engine, paths, tmp_path / "features")


def test_rows_follow_the_items_whatever_the_threads(scene: Scene) -> None:
    job = scene.job()
    result, shard = scene.run(job)
    assert load_shard_ids(shard) == list(job.items) == list(scene.paths)
    assert (result.num_items, result.failed_items, result.sha256) == (7, (), digest_file(shard))
    plain = np.stack([load_views(path, "", "", scene.recipe)[0] for path in scene.paths.values()])
    assert np.array_equal(map_member(shard, "global_pool"), scene.engine.encode(plain).astype(np.float16))
    before = shard.read_bytes()
    assert scene.run(job, threads=2)[1].read_bytes() == before


def test_an_unreadable_picture_is_left_out_and_reported(scene: Scene) -> None:
    job = scene.job()
    _, shard = scene.run(job)
    whole = np.array(map_member(shard, "global_pool"))
    truncated, gone = job.items[2], job.items[5]
    file = Path(scene.paths[truncated])
    file.write_bytes(file.read_bytes()[:300])
    Path(scene.paths[gone]).unlink()
    planned = with_contents(job, [digest_file(file) if item == truncated else "" for item in job.items])
    result, shard = scene.run(planned)
    assert [sample_id for sample_id, _ in result.failed_items] == [truncated, gone]
    assert result.failed_items[1][1] == "missing: the file is gone"
    kept = [index for index in range(7) if index not in (2, 5)]
    assert load_shard_ids(shard) == [job.items[index] for index in kept]
    assert np.array_equal(map_member(shard, "global_pool"), whole[kept])


def test_picture_changed_since_planning_is_reported(scene: Scene) -> None:
    job = scene.job()
    first, second = (Path(scene.paths[item]) for item in job.items[:2])
    second.write_bytes(first.read_bytes())
    result, shard = scene.run(job)
    ((sample_id, reason),) = result.failed_items
    assert (sample_id, reason.startswith("changed: ")) == (job.items[1], True)
    assert len(load_shard_ids(shard)) == 6


def test_an_item_that_is_no_longer_a_sample_is_reported(scene: Scene) -> None:
    job = scene.job()
    del scene.paths[job.items[0]]
    result, shard = scene.run(job)
    assert result.failed_items == ((job.items[0], "missing: it is no longer among the samples"),)
    assert len(load_shard_ids(shard)) == 6


def test_job_of_unreadable_pictures_gives_an_empty_shard(scene: Scene) -> None:
    job = scene.job()
    for path in scene.paths.values():
        Path(path).write_bytes(b"not a picture")
    result, shard = scene.run(with_contents(job, [""] * 7))
    assert len(result.failed_items) == 7
    assert map_member(shard, "global_pool").shape == (0, scene.recipe.encoder.dim)


class Loud(TorchEngine):
    """Features past the largest float16."""

    def encode(self, pixels_nhwc: np.ndarray) -> np.ndarray:
        return super().encode(pixels_nhwc) * 1e8


def test_float16_overflow_fails_the_job(scene: Scene, tiny: Encoder) -> None:
    loud = replace(scene, engine=Loud(tiny, device=torch.device("cpu"), batch=4))
    with pytest.raises(FeatureOverflow):
        loud.run(loud.job())
    assert not (loud.folder / loud.job().output).exists()


def test_views_are_deterministic_and_differ(scene: Scene) -> None:
    augmented = replace(scene, recipe=replace(scene.recipe, num_augmented=3))
    _, shard = augmented.run(augmented.job())
    before = shard.read_bytes()
    views = np.array(map_member(shard, "views"))
    assert views.shape == (7, 3, scene.recipe.encoder.dim)
    assert augmented.run(augmented.job(), threads=2)[1].read_bytes() == before
    flat = {row.tobytes() for row in np.concatenate([map_member(shard, "global_pool"), views.reshape(21, -1)])}
    assert len(flat) == 28


def test_a_view_depends_on_the_sample_s_id_not_on_its_place(scene: Scene, tmp_path: Path) -> None:
    recipe = replace(scene.recipe, num_augmented=2)
    sample_id, path = next(iter(scene.paths.items()))
    moved = tmp_path / "elsewhere.bin"
    moved.write_bytes(Path(path).read_bytes())
    here, there, other = (load_views(*of, "", recipe) for of in ((path, sample_id), (str(moved), sample_id), (path, "other")))
    assert all(np.array_equal(one, two) for one, two in zip(here, there, strict=True))
    assert np.array_equal(here[0], other[0])
    assert not np.array_equal(here[1], other[1])


def test_a_worker_refuses_weights_that_are_not_the_recipe_s(scene: Scene, tiny_weights: Path, tmp_path: Path) -> None:

    other = replace(scene.recipe, encoder=replace(scene.recipe.encoder, weights_sha256="0" * 64))
    with refused("weights-changed", "test_resnet"):
        set_up(other, tiny_weights, scene.paths, tmp_path, 4, False)


def cut_scene(scene: Scene, encoder: Encoder, cut: str, tiles: TilePlan, *, num_augmented: int = 0) -> Scene:
    """The same photos through the part of the network before a cut."""
    parts = cut_network(encoder, cut)
    engine = TorchEngine(frozen_part(encoder, parts), device=torch.device("cpu"), batch=4)
    recipe = PictureRecipe(encoder.spec, "torch", "f32", num_augmented, cut, tiles, shape=parts.shape)
    return replace(scene, recipe=recipe, engine=engine)


def test_activations_at_a_cut_are_stored_in_their_own_shape(scene: Scene, tiny: Encoder) -> None:
    cut = cut_scene(scene, tiny, "-2", TilePlan())
    job = cut.job()
    _, shard = cut.run(job)
    stored = map_member(shard, "activations")
    assert stored.shape == (7, 1, *cut_network(tiny, "-2").shape)
    plain = np.stack([load_views(path, "", "", cut.recipe)[0] for path in cut.paths.values()])
    assert np.array_equal(stored[:, 0], cut.engine.encode(plain).astype(np.float16))
    assert load_shard_ids(shard) == list(job.items)


def test_the_rest_of_the_network_finishes_what_was_stored(scene: Scene, tiny: Encoder) -> None:
    cut = cut_scene(scene, tiny, "-2", TilePlan())
    _, shard = cut.run(cut.job())
    _, pooled = scene.run(scene.job())
    with torch.inference_mode():
        finished = cut_network(tiny, "-2").suffix(torch.from_numpy(np.array(map_member(shard, "activations")[:, 0])).float())
    expected = np.array(map_member(pooled, "global_pool")).astype(np.float32)
    assert np.abs(finished.numpy() - expected).max() < 0.01 * np.abs(expected).max()


def test_tiles_of_a_picture_lie_side_by_side_in_its_row(scene: Scene, tiny: Encoder) -> None:
    tiles = TilePlan(2, 1, 2)
    tiled = cut_scene(scene, tiny, "end", tiles)
    _, shard = tiled.run(tiled.job())
    stored = map_member(shard, "activations")
    assert stored.shape == (7, 4, tiny.spec.dim)
    for row, path in zip(stored, tiled.paths.values(), strict=True):
        shown = cut_tiles(read_image(path), tiles, tiny.spec.preprocess)
        assert np.array_equal(row, tiled.engine.encode(shown).astype(np.float16))


def test_tiled_views_have_every_tile(scene: Scene, tiny: Encoder) -> None:
    tiled = cut_scene(scene, tiny, "-1", TilePlan(2, 2, 1), num_augmented=2)
    _, shard = tiled.run(tiled.job())
    assert map_member(shard, "views").shape == (7, 2, 4, *cut_network(tiny, "-1").shape)
    before = shard.read_bytes()
    assert tiled.run(tiled.job(), threads=2)[1].read_bytes() == before


def test_mirrored_view_mirrors_before_tiling(scene: Scene, tiny: Encoder, tmp_path: Path) -> None:
    from PIL import Image

    from unchoke.pixels.tile_grid import plan_view

    dark_left = np.zeros((200, 400, 3), np.uint8)
    dark_left[:, 200:] = 200
    file = tmp_path / "halves.png"
    Image.fromarray(dark_left).save(file)
    recipe = replace(scene.recipe, num_augmented=1, tiles=TilePlan(streams=4))
    ids = [f"s{number}" for number in range(20)]
    for sample_id in ids:
        tiles = np.stack(load_views(str(file), sample_id, "", recipe)).reshape(2, 4, -1).mean(axis=2)
        assert tiles[0, 0] < tiles[0, 3]
        mirrored = plan_view(sample_id, 1, height=4096, width=4096).mirrored
        assert (tiles[1, 0] > tiles[1, 3]) == mirrored
    assert len({plan_view(sample_id, 1, height=4096, width=4096).mirrored for sample_id in ids}) == 2


def test_views_of_tiled_photos_keep_about_their_proportions(scene: Scene) -> None:
    from unchoke.features.extractor import _stretched
    from unchoke.pixels.tile_grid import plan_view

    for number in range(1, 40):
        window = _stretched(plan_view("a", number, height=4096, width=4096), 1000, 2000)
        assert 0 <= window.top <= window.top + window.height <= 1000
        assert 0 <= window.left <= window.left + window.width <= 2000
        assert 1.45 < window.width / window.height < 2.75
        assert window.width * window.height > 0.34 * 2_000_000


def test_picture_too_small_for_its_tiles_is_named(scene: Scene, tiny: Encoder) -> None:
    tiled = cut_scene(scene, tiny, "end", TilePlan(1, 80, 1))
    result, shard = tiled.run(tiled.job())
    assert len(result.failed_items) == 7
    assert result.failed_items[0][1] == "unreadable: 96×72 pixels are too few for 1×(80×1) tiles"
    assert map_member(shard, "activations").shape == (0, 80, tiny.spec.dim)


def test_an_overflow_names_the_network_and_its_cut(scene: Scene, tiny: Encoder) -> None:
    cut = cut_scene(scene, tiny, "-1", TilePlan())
    loud = replace(cut, engine=Loud(frozen_part(tiny, cut_network(tiny, "-1")), device=torch.device("cpu"), batch=4))
    with pytest.raises(FeatureOverflow, match="of test_resnet cut at -1 does not fit float16"):
        loud.run(loud.job())


def test_worker_process_writes_the_same_bytes(scene: Scene, tiny: Encoder, tiny_weights: Path, tmp_path: Path) -> None:
    cut = cut_scene(scene, tiny, "-2", TilePlan(2, 1, 1), num_augmented=1)
    job = cut.job()
    expected, shard = cut.run(job)
    others = tmp_path / "others"
    arguments = (cut.recipe, tiny_weights, cut.paths, others, cut.engine.batch, cut.engine.channels_last)
    (outcome,) = ProcessEngine(1).map_unordered(run_job, [job], setup=set_up, setup_args=arguments)
    assert outcome.error is None, outcome.traceback_text
    assert outcome.value is not None
    assert replace(outcome.value, info={}) == replace(expected, info={})  # all but how long it took
    assert {"open", "read", "decode", "transform"} <= set(outcome.value.info["loading"])
    assert outcome.value.info["loading"]["decode"][1] == len(job.items)
    assert (others / job.output).read_bytes() == shard.read_bytes()
