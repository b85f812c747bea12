"""The body of a job: rows in item order, failures named, nothing substituted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from unchoke.features.encoders import Encoder
from unchoke.features.engines import TorchEngine
from unchoke.features.extract import Extractor, load_views
from unchoke.features.recipe import Recipe
from unchoke.features.store import FeatureOverflow, load_shard_ids, map_member
from unchoke.features.worker import run_job, set_up
from unchoke.fingerprint import digest_file
from unchoke.jobs.engines import ProcessEngine
from unchoke.jobs.plan import Job, plan_jobs
from unchoke.jobs.records import JobResult


@dataclass(frozen=True)
class Scene:
    """Some photos under their ids, and how to make features of them."""

    recipe: Recipe
    engine: TorchEngine
    paths: dict[str, str]
    folder: Path

    def job(self) -> Job:
        items = [(sample_id, digest_file(Path(path))) for sample_id, path in self.paths.items()]
        (job,) = plan_jobs(
            items, fingerprint=self.recipe.fingerprint, output_pattern=self.recipe.output_pattern, previous=[], job_size=64
        )
        return job

    def run(self, job: Job, *, threads: int = 0) -> tuple[JobResult, Path]:
        result = Extractor(self.engine, self.recipe, self.paths, self.folder, threads)(job)
        return result, self.folder / job.output


@pytest.fixture
def scene(tiny: Encoder, own_photos: Path, tmp_path: Path) -> Scene:
    files = sorted(own_photos.rglob("*.jpg"))[::6]
    paths = {file.relative_to(own_photos).as_posix(): str(file) for file in reversed(files)}
    engine = TorchEngine(tiny, device=torch.device("cpu"), batch=4)
    return Scene(Recipe(tiny.spec, "torch", "f32"), engine, paths, tmp_path / "features")


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
    planned = replace(job, contents=tuple(digest_file(file) if item == truncated else "" for item in job.items))
    result, shard = scene.run(planned)
    assert [sample_id for sample_id, _ in result.failed_items] == [truncated, gone]
    assert result.failed_items[1][1] == "missing: the file is gone"
    kept = [index for index in range(7) if index not in (2, 5)]
    assert load_shard_ids(shard) == [job.items[index] for index in kept]
    assert np.array_equal(map_member(shard, "global_pool"), whole[kept])


def test_a_picture_changed_since_planning_is_reported_not_used(scene: Scene) -> None:
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


def test_a_job_whose_pictures_all_fail_still_gives_an_empty_shard(scene: Scene) -> None:
    job = scene.job()
    for path in scene.paths.values():
        Path(path).write_bytes(b"not a picture")
    result, shard = scene.run(replace(job, contents=("",) * 7))
    assert len(result.failed_items) == 7
    assert map_member(shard, "global_pool").shape == (0, scene.recipe.encoder.dim)


class Loud(TorchEngine):
    """Features past the largest float16."""

    def encode(self, pixels_nhwc: np.ndarray) -> np.ndarray:
        return super().encode(pixels_nhwc) * 1e8


def test_a_float16_overflow_fails_the_job_and_stores_nothing(scene: Scene, tiny: Encoder) -> None:
    loud = replace(scene, engine=Loud(tiny, device=torch.device("cpu"), batch=4))
    with pytest.raises(FeatureOverflow):
        loud.run(loud.job())
    assert not (loud.folder / loud.job().output).exists()


def test_views_are_deterministic_differ_and_leave_the_plain_one_first(scene: Scene) -> None:
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


def test_a_worker_process_writes_the_same_bytes(scene: Scene, tiny_weights: Path, tmp_path: Path) -> None:
    job = scene.job()
    expected, shard = scene.run(job)
    others = tmp_path / "others"
    arguments = (scene.recipe, tiny_weights, scene.paths, others, scene.engine.batch, scene.engine.channels_last)
    (outcome,) = ProcessEngine(1).map_unordered(run_job, [job], setup=set_up, setup_args=arguments)
    assert outcome.error is None, outcome.traceback_text
    assert outcome.value == expected
    assert (others / job.output).read_bytes() == shard.read_bytes()


def test_a_worker_refuses_weights_that_are_not_the_recipe_s(scene: Scene, tiny_weights: Path, tmp_path: Path) -> None:
    from unchoke.errors import UsageError

    other = replace(scene.recipe, encoder=replace(scene.recipe.encoder, weights_sha256="0" * 64))
    with pytest.raises(UsageError, match="changed while"):
        set_up(other, tiny_weights, scene.paths, tmp_path, 4, False)
