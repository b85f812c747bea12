"""Jobs as one stream: the same shards as job by job, whoever reads and wherever batches end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unchoke.core.fingerprint import digest_file
from unchoke.features import photo_loader
from unchoke.features.encoders import Encoder
from unchoke.features.engines import TorchEngine
from unchoke.features.extractor import Extractor, PictureReader
from unchoke.features.feature_store import FeatureOverflow
from unchoke.features.gpu_decoder import GpuDecoder
from unchoke.features.photo_loader import FileReader, Load, load_in_processes, load_in_threads
from unchoke.features.recipe import CARD, PictureRecipe
from unchoke.features.stream import StreamExtractor
from unchoke.jobs.job_engines import InProcessEngine
from unchoke.jobs.job_plan import Job, plan_jobs
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.run_jobs import run_jobs


@dataclass(frozen=True)
class Photos:
    """Some photos under their ids, in jobs of five, one of them broken and one gone."""

    recipe: PictureRecipe
    engine: TorchEngine
    paths: dict[str, str]
    folder: Path

    def jobs(self) -> list[Job]:
        contents = [digest_file(Path(path)) if Path(path).exists() else "" for path in self.paths.values()]
        pattern = "shards/{first}-{last}.npz"
        return plan_jobs(list(self.paths), contents, fingerprint="f" * 64, output_pattern=pattern, previous=[], job_size=5)

    def one_by_one(self) -> Shards:
        extractor = Extractor(self.engine, self.recipe, PictureReader(self.recipe, self.paths), self.folder / "plain")
        for job in self.jobs():
            extractor(job)
        return shards(self.folder / "plain")

    def streamed(self, load: Load, name: str) -> Shards:
        extractor = StreamExtractor(self.engine, self.recipe, load, self.folder / name)
        outcomes = list(extractor.stream(iter(self.jobs())))
        assert [outcome.error for outcome in outcomes] == [None] * len(self.jobs())
        failed = [failed for outcome in outcomes if outcome.value for failed in outcome.value.failed_items]
        assert sorted(reason.partition(":")[0] for _, reason in failed) == ["missing", "truncated"]
        return shards(self.folder / name)

    @property
    def threads(self) -> Load:
        return load_in_threads(PictureReader(self.recipe, self.paths), threads=2)


Shards = dict[str, dict[str, Any]]


def shards(folder: Path) -> Shards:
    return {file.name: dict(np.load(file)) for file in sorted(folder.rglob("*.npz"))}


def same(ours: Shards, theirs: Shards, *, within: float = 1e-3) -> None:
    """The same rows of the same samples; where in its batch a picture stands may move the last bit."""
    assert list(ours) == list(theirs)
    for name, members in theirs.items():
        assert ours[name]["sample_id"].tolist() == members["sample_id"].tolist()
        assert list(ours[name]) == list(members)
        for member in set(members) - {"sample_id"}:
            assert np.allclose(ours[name][member], members[member], atol=within * float(np.abs(members[member]).max(initial=1)))


@pytest.fixture
def photos(tiny: Encoder, own_photos: Path, tmp_path: Path) -> Photos:
    files = sorted(own_photos.rglob("*.jpg"))[:16]
    paths = {file.relative_to(own_photos).as_posix(): str(file) for file in files}
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(files[0].read_bytes()[:-400])
    paths |= {"broken": str(broken), "gone": str(tmp_path / "gone.jpg")}
    engine = TorchEngine(tiny, device=torch.device("cpu"), batch=4)
    return Photos(PictureRecipe(tiny.spec, "torch", "f32", num_augmented=1), engine, paths, tmp_path / "features")


def test_threads_give_the_same_shards_as_job_by_job(photos: Photos) -> None:
    same(photos.streamed(photos.threads, "threads"), photos.one_by_one())


def test_processes_give_the_same_shards_too(photos: Photos) -> None:
    load = load_in_processes(photos.recipe, photos.paths, processes=2, for_gpu=False)
    same(photos.streamed(load, "processes"), photos.one_by_one())


def test_batches_go_on_from_one_job_into_the_next(photos: Photos) -> None:
    sizes: list[int] = []
    engine = photos.engine
    launch = engine.launch

    def counted(batch: object) -> torch.Tensor:
        found = launch(batch)  # type: ignore[arg-type]
        sizes.append(len(found))
        return found

    engine.launch = counted  # type: ignore[method-assign, assignment]
    photos.streamed(photos.threads, "counted")
    assert sum(sizes) == 2 * 16
    assert sizes[:-1] == [engine.batch] * (len(sizes) - 1)


def test_a_feature_that_does_not_fit_fails_its_job_alone(photos: Photos) -> None:
    launch, seen = photos.engine.launch, iter(range(100))

    def overflowing(batch: object) -> torch.Tensor:
        found = launch(batch)  # type: ignore[arg-type]
        if next(seen) == 1:
            found = found.clone()
            found[0] = 1e6
        return found

    photos.engine.launch = overflowing  # type: ignore[method-assign, assignment]
    outcomes = list(StreamExtractor(photos.engine, photos.recipe, photos.threads, photos.folder).stream(photos.jobs()))
    failed = [outcome for outcome in outcomes if outcome.error]
    assert [type(outcome.error) for outcome in failed] == [FeatureOverflow]
    assert len(outcomes) == len(photos.jobs())


@pytest.mark.parametrize("fetched", [False, True])
def test_failing_engine_costs_only_the_jobs_of_its_batch(photos: Photos, fetched: bool) -> None:
    launch, seen = photos.engine.launch, iter(range(100))

    class Lost:
        """Features that never come."""

        device = torch.device("cpu")

        def half(self) -> Lost:
            return self

        def cpu(self) -> Lost:
            raise RuntimeError("the device went away")

    def failing(batch: object) -> Any:
        if next(seen):
            return launch(batch)  # type: ignore[arg-type]
        if not fetched:
            raise RuntimeError("the device went away")
        return Lost()

    photos.engine.launch = failing  # type: ignore[method-assign, assignment]
    extractor = StreamExtractor(photos.engine, photos.recipe, photos.threads, photos.folder)
    outcomes = list(extractor.stream(iter(photos.jobs())))
    assert len(outcomes) == 4
    assert [str(outcome.error) for outcome in outcomes if outcome.error] == ["the device went away"]
    again = list(extractor.stream(outcome.task for outcome in outcomes if outcome.error))
    assert [outcome.error for outcome in again] == [None]


def test_photos_that_do_not_fit_beside_others_are_read_alone(photos: Photos, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = replace(photos.recipe, num_augmented=0, decode_scale=CARD)
    monkeypatch.setattr(photo_loader, "_REGION_BYTES", 12_000)
    load = load_in_processes(recipe, photos.paths, processes=1, for_gpu=True)
    extractor = StreamExtractor(photos.engine, recipe, load, photos.folder / "gpu", CpuDecoder(recipe))
    outcomes = list(extractor.stream(photos.jobs()))
    assert sum(outcome.value.num_items - len(outcome.value.failed_items) for outcome in outcomes if outcome.value) == 16


def test_jobs_in_a_queue_are_recorded_as_they_are_complete(photos: Photos) -> None:
    queue = JobQueue(photos.folder)
    queue.save_plan(photos.jobs())
    extractor = StreamExtractor(photos.engine, photos.recipe, photos.threads, photos.folder)
    summary = run_jobs(queue, queue.jobs(), extractor, engine=InProcessEngine())
    assert (summary.num_done, summary.failed, summary.num_failed_items) == (4, {}, 2)
    assert not queue.state("f" * 64).pending
    assert extractor(photos.jobs()[0]).sha256 == digest_file(photos.folder / photos.jobs()[0].output)


def test_a_stopped_stream_finishes_what_it_began(photos: Photos) -> None:
    engine, taken = InProcessEngine(), []

    def jobs() -> Iterator[Job]:
        for job in photos.jobs():
            taken.append(job.job_id)
            yield job

    body = StreamExtractor(photos.engine, photos.recipe, photos.threads, photos.folder)
    done = []
    for outcome in engine.map_unordered(body, jobs()):
        engine.stop()
        done.append(outcome.task.job_id)
    assert sorted(done) == sorted(taken)


class CpuDecoder(GpuDecoder):
    """The GPU's decoder with libjpeg-turbo in nvJPEG's place."""

    def __init__(self, recipe: PictureRecipe) -> None:
        import simplejpeg

        self._preprocess, self.device, self._pixels_at_once = recipe.encoder.preprocess, torch.device("cpu"), 200_000
        self._decode = lambda files: [
            torch.from_numpy(simplejpeg.decode_jpeg(file.numpy().tobytes(), "RGB")).permute(2, 0, 1) for file in files
        ]


@pytest.mark.parametrize("processes", [0, 2])
def test_a_gpu_that_decodes_gives_nearly_the_same_features(photos: Photos, processes: int) -> None:
    recipe = replace(photos.recipe, num_augmented=0, decode_scale=CARD)
    plain = replace(photos, recipe=recipe)
    expected = plain.one_by_one()
    load = load_in_threads(FileReader(photos.paths), threads=2)
    if processes:
        load = load_in_processes(recipe, photos.paths, processes=processes, for_gpu=True)
    extractor = StreamExtractor(photos.engine, recipe, load, photos.folder / "gpu", CpuDecoder(recipe))
    outcomes = list(extractor.stream(iter(photos.jobs())))
    assert sorted(len(outcome.value.failed_items) for outcome in outcomes if outcome.value) == [0, 0, 0, 2]
    same(shards(photos.folder / "gpu"), expected, within=0.02)
