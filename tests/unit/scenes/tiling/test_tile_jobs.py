"""Strips as jobs: the order they run in, what makes them be done again, and that the order they end in leaves no trace."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin

from unchoke.jobs.job_engines import InProcessEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import JobResult
from unchoke.jobs.run_jobs import run_jobs
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import ExpressionMask
from unchoke.scenes.open_scenes import inspect_scene
from unchoke.scenes.scale import SceneScale
from unchoke.scenes.scene_facts import BandFile, Scene
from unchoke.scenes.tiling.tile_jobs import StripBody, StripJob, find_state, load_strip, plan_jobs, tiles_key
from unchoke.scenes.tiling.tiles import TileSpec

FINGERPRINT = "0123456789abcdef"


def make_spec(folder: Path, name: str, *, height: int = 96, width: int = 64) -> TileSpec:
    """A scene of one small band."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}_B3.tif"
    shape = {"height": height, "width": width, "count": 1, "dtype": "uint16"}
    layout = {"tiled": True, "blockxsize": 16, "blockysize": 16}
    with rasterio.open(path, "w", driver="GTiff", transform=from_origin(5, 5, 1, 1), crs="EPSG:32633", **shape, **layout) as file:
        file.write(np.arange(height * width, dtype=np.uint16).reshape(height, width), 1)
    scene = Scene(name, (BandFile("B3", str(path)),))
    facts = inspect_scene(scene, pool=HandlePool())
    return TileSpec(facts, SceneScale("given", (100.0,), (0.0,)), "", size_px=16, mask=ExpressionMask("B3 > 9", ("B3",)))


def plan_small(tmp_path: Path) -> dict[str, StripJob]:
    specs = [make_spec(tmp_path / "scenes", "a"), make_spec(tmp_path / "scenes", "b", width=128)]
    return plan_jobs(specs, fingerprint=FINGERPRINT)


def run_all(work: dict[str, StripJob], root: Path, *, delays_s: dict[str, float] | None = None, slots: int = 1) -> list[str]:
    """Run every strip, some of them slowly; the ids of the jobs in the order they ended."""
    queue = JobQueue.load(root)
    queue.save_plan(one.job for one in work.values())
    body = StripBody(root, work)
    ended: list[str] = []

    def slowly(job: Job) -> JobResult:
        time.sleep((delays_s or {}).get(job.job_id, 0.0))
        return body(job)

    jobs = [one.job for one in work.values()]
    run_jobs(queue, jobs, slowly, engine=InProcessEngine(slots), on_result=lambda job, _: ended.append(job.job_id))
    return ended


def files(root: Path) -> dict[str, bytes]:
    """Tiles and strips: everything but the records of when and how long."""
    found = [file for file in sorted(root.rglob("*")) if file.suffix in {".npz", ".json"}]
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in found}


def test_large_strips_first_scene_in_order(tmp_path: Path) -> None:
    order = [(one.strip.scene_id, one.strip.number) for one in plan_small(tmp_path).values()]
    of_b = sum(scene == "b" for scene, _ in order)
    assert [scene for scene, _ in order[:of_b]] == ["b"] * of_b
    assert order == [*sorted(order[:of_b]), *sorted(order[of_b:])]


def test_every_window_is_in_one_job(tmp_path: Path) -> None:
    jobs = [one.job for one in plan_small(tmp_path).values()]
    items = [item for job in jobs for item in job.items]
    assert len(items) == len(set(items)) == 6 * 4 + 6 * 8
    assert len({job.output for job in jobs}) == len(jobs)


def test_size_of_plain_tiles_is_known_beforehand(tmp_path: Path) -> None:
    work = plan_jobs([replace(make_spec(tmp_path / "scenes", "a"), compress="none")], fingerprint=FINGERPRINT)
    planned_bytes = sum(one.plain_bytes for one in work.values())
    assert planned_bytes == 96 * 64 * (4 + 1 + 1)
    run_all(work, tmp_path / "tiles")
    written_bytes = sum(len(data) for name, data in files(tmp_path / "tiles").items() if name.endswith(".npz"))
    assert planned_bytes < written_bytes < planned_bytes + 24 * 8000


def test_slow_strips_change_the_order_and_no_byte(tmp_path: Path) -> None:
    work = plan_small(tmp_path)
    straight = run_all(work, tmp_path / "straight")
    reordered = run_all(work, tmp_path / "slow", delays_s={straight[0]: 0.2, straight[1]: 0.1}, slots=3)
    assert sorted(reordered) == sorted(straight)
    assert reordered != straight
    assert files(tmp_path / "slow") == files(tmp_path / "straight")


@pytest.mark.parametrize(
    "changed",
    [
        {"size_px": 32},
        {"overlap_px": 4},
        {"edges": "padded"},
        {"min_valid": 0.5},
        {"compress": "none"},
        {"store": "raw"},
        {"mask": None},
        {"mask": ExpressionMask("B3 > 10", ("B3",))},
        {"scale": SceneScale("given", (200.0,), (0.0,))},
    ],
)
def test_whatever_the_bytes_depend_on_is_in_the_key(tmp_path: Path, changed: dict[str, object]) -> None:
    spec = make_spec(tmp_path, "a")
    assert tiles_key(replace(spec, **changed)) != tiles_key(spec)  # type: ignore[arg-type]
    assert tiles_key(replace(spec, folder="elsewhere")) == tiles_key(spec)


def test_broken_scene_recorded_with_file(tmp_path: Path) -> None:
    work, root = plan_small(tmp_path), tmp_path / "tiles"
    victim = tmp_path / "scenes" / "a_B3.tif"
    victim.write_bytes(victim.read_bytes()[:300])
    run_all(work, root)
    queue = JobQueue.load(root)
    state = find_state(queue, [one.job for one in work.values()], fingerprint=FINGERPRINT)
    assert {work[job.job_id].strip.scene_id for job in state.pending} == {"a"}, "it is tried again next time"
    record = load_strip(queue.artefact(state.pending[0]))
    assert record is not None
    assert record.path == str(victim)
    assert str(victim) in record.failed


def test_damaged_strip_record_is_pending(tmp_path: Path) -> None:
    work, root = plan_small(tmp_path), tmp_path / "tiles"
    run_all(work, root)
    jobs = [one.job for one in work.values()]
    (root / jobs[0].output).write_text("{")
    state = find_state(JobQueue.load(root), jobs, fingerprint=FINGERPRINT)
    assert [job.job_id for job in state.pending] == [jobs[0].job_id]
    assert len(state.problems) == 1
