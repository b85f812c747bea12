from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from errors import refused
from unchoke.scenes.handles import HandlePool, choose_limit
from unchoke.scenes.scene_facts import Grid


@pytest.fixture
def files(make_raster, noise):
    return [make_raster(f"scene{number}.tif", noise(8, 8, seed=number)) for number in range(8)]


def first_pixel(pool, path):
    with pool.open(path) as dataset:
        return int(dataset.read(1)[0, 0])


def test_a_file_that_is_open_is_not_opened_again(files):
    pool = HandlePool(4)
    with pool.open(files[0]) as first:
        pass
    with pool.open(files[0]) as again:
        assert again is first
    assert pool.num_open == 1


def test_the_least_recently_used_file_is_closed_first(files):
    pool = HandlePool(2)
    for path in (files[0], files[1], files[0], files[2]):
        first_pixel(pool, path)
    with pool.open(files[0]) as kept:
        assert not kept.closed
    assert pool.num_open == 2
    with pool.open(files[0]) as dataset:
        assert dataset is kept


def test_a_file_in_use_is_never_closed_to_make_room(files):
    pool = HandlePool(1)
    with pool.open(files[0]) as outer:
        first_pixel(pool, files[1])
        first_pixel(pool, files[2])
        assert outer.read(1).shape == (8, 8)
    assert pool.num_open <= 2


def test_threads_do_not_share_datasets(files):
    pool = HandlePool(8)
    seen = {}
    meet = threading.Barrier(2)

    def look(name):
        with pool.open(files[0]) as dataset:
            seen[name] = id(dataset)
            meet.wait(10)

    threads = [threading.Thread(target=look, args=(name,)) for name in "ab"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert seen["a"] != seen["b"]


def test_datasets_of_ended_threads_are_closed(files):
    pool = HandlePool(8)
    for path in files[:3]:
        thread = threading.Thread(target=first_pixel, args=(pool, path))
        thread.start()
        thread.join()
    first_pixel(pool, files[4])
    assert pool.num_open == 1


def test_threads_share_the_budget_and_read_the_same_pixels(files):
    alone = [first_pixel(HandlePool(8), path) for path in files]
    pool = HandlePool(3)
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda path: first_pixel(pool, path), files * 5))
    assert together == alone * 5
    assert pool.num_open <= 3 + 4


def test_closing_leaves_what_is_in_use_until_its_end(files):
    pool = HandlePool(4)
    with pool.open(files[0]) as dataset:
        pool.close()
        assert dataset.read(1).shape == (8, 8)
    assert dataset.closed
    assert first_pixel(pool, files[0]) > 0


def test_a_replaced_file_is_opened_again(make_raster):
    path = make_raster("a.tif", np.full((8, 8), 1, np.uint16))
    pool = HandlePool(4)
    assert first_pixel(pool, path) == 1
    make_raster("b.tif", np.full((8, 8), 2, np.uint16))
    Path(path).with_name("b.tif").replace(path)
    os.utime(path, ns=(1, 1))
    assert first_pixel(pool, path) == 2


def test_a_pool_arrives_empty_in_another_process(files):
    pool = HandlePool(4)
    first_pixel(pool, files[0])
    arrived = pickle.loads(pickle.dumps(pool))
    assert arrived.num_open == 0
    assert first_pixel(arrived, files[0]) == first_pixel(pool, files[0])


def test_a_missing_file_and_one_that_is_no_raster_are_named(tmp_path):
    pool = HandlePool(4)
    (tmp_path / "notes.tif").write_text("not a raster")
    for name in ("gone.tif", "notes.tif"):
        with refused("unreadable-scene", name) as caught, pool.open(str(tmp_path / name)):
            pass
        assert caught.value.path == str(tmp_path / name)
        assert pickle.loads(pickle.dumps(caught.value)).path == caught.value.path
    assert pool.num_open == 0


def test_warped_dataset_on_grid_with_mask(make_raster):
    path = make_raster("label.tif", np.arange(16, dtype=np.uint8).reshape(4, 4), pixel=10.0, nodata=5)
    with HandlePool(4).open(path) as dataset:
        crs = dataset.crs.to_wkt()
    grid = Grid(10, 8, (5.0, 0.0, 500_000.0, 0.0, -5.0, 4_000_000.0), crs)
    with HandlePool(4).open(path, onto=grid) as warped:
        values, there = warped.read(1), warped.read_masks(1) > 0
    assert values.shape == (8, 10)
    assert (values[:, 6] == np.repeat([3, 7, 11, 15], 2)).all()
    assert not there[:, 8:].any(), "beyond the file"
    assert not there[2:4, 2:4].any(), "nodata"
    assert there[0, :8].all()


def test_the_limit_leaves_room_for_other_files():
    import resource

    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 2 <= choose_limit() < allowed


FEW_DESCRIPTORS = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
from unchoke.core.boxes import Box
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.open_scenes import inspect_scene
from unchoke.scenes.raster import read_box
from unchoke.scenes.scene_facts import BandFile, Scene

root = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
pool = HandlePool()

def total(number):
    scene = Scene(f"s{number}", tuple(BandFile(f"B{band}", str(root / f"s{number}_B{band}.tif")) for band in range(4)))
    facts = inspect_scene(scene, pool=pool)
    bands, valid = read_box(facts, Box(0, 0, 8, 8), pool=pool)
    assert valid.all()
    return bands.reshape(4, -1)[:, 0].tolist()

with ThreadPoolExecutor(2) as threads:
    firsts = list(threads.map(total, range(100)))
assert firsts == [[number % 16, 1, 2, 3] for number in range(100)]
print("read", len(firsts), "open", pool.num_open)
"""


def write_many(root, make_raster):
    """100 scenes of four bands: few contents, linked under many names, so that writing them costs little."""
    contents = [make_raster(f"content{value}.tif", np.full((8, 8), value, np.uint8)) for value in range(16)]
    for number in range(100):
        for band in range(4):
            os.link(contents[number % 16 if band == 0 else band], root / f"s{number}_B{band}.tif")


def test_400_band_files_fit_in_64_descriptors(tmp_path, make_raster):
    write_many(tmp_path, make_raster)
    done = subprocess.run([sys.executable, "-c", FEW_DESCRIPTORS, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("read 100 open ")


OUT_OF_DESCRIPTORS = """
import os, resource, sys
from unchoke.scenes.handles import HandlePool
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
pool = HandlePool(40)   # more than there will be
paths = sys.argv[1:]
def read(path):
    with pool.open(path) as dataset:
        return int(dataset.read(1)[0, 0])
alone = [read(path) for path in paths]
pool.close()
assert [read(path) for path in paths[:10]] == alone[:10]
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError as error:
    assert "Too many open files" in str(error)
assert [read(path) for path in paths * 3] == alone * 3
assert pool.num_open < len(paths), pool.num_open
"""


def test_out_of_descriptors_closes_half(files, make_raster, noise):
    more = [make_raster(f"more{number}.tif", noise(8, 8, seed=100 + number)) for number in range(14)]
    done = subprocess.run([sys.executable, "-c", OUT_OF_DESCRIPTORS, *files, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


FORKED = """
import os, sys, threading
from unchoke.scenes.handles import HandlePool
pool = HandlePool(6)
paths = sys.argv[1:]
def read(path):
    with pool.open(path) as dataset:
        return dataset.read(1).tobytes()
before = [read(path) for path in paths]
pool._lock.acquire()     # as if another thread held it at the moment of the fork
child = os.fork()
if child == 0:
    same = [read(path) for path in paths] == before
    os._exit(0 if same and pool.num_open == 6 else 1)
pool._lock.release()
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert [read(path) for path in paths] == before
"""


def test_forked_child_reads_on_its_own(files):
    done = subprocess.run([sys.executable, "-c", FORKED, *files], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


SPAWNED = """
import multiprocessing, sys
from unchoke.scenes.handles import HandlePool

def read(job):
    pool, path = job
    with pool.open(path) as dataset:
        return dataset.read(1).tobytes()

if __name__ == "__main__":
    pool = HandlePool(4)
    jobs = [(pool, path) for path in sys.argv[1:]]
    here = [read(job) for job in jobs]
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        assert workers.map(read, jobs) == here
"""


def test_a_spawned_child_rebuilds_the_pool(files, tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(textwrap.dedent(SPAWNED))
    done = subprocess.run([sys.executable, str(script), *files[:3]], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
