from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from errors import refused
from unchoke.core.ahead import map_ahead
from unchoke.core.choices import Choice
from unchoke.pixels.image import DecodeError
from unchoke.pixels.pixel_cache import PictureFile, PixelCache, open_cache, plan_cache
from unchoke.pixels.slots import RECORD, Pixels, held_bytes

HEIGHT, WIDTH = 6, 5
ROW_BYTES = HEIGHT * WIDTH * 3
GIB = 2**30


class Pictures:
    """Made-up pictures that count how often each is decoded; `edit` changes one as if its file had been saved again."""

    def __init__(self, num_images: int) -> None:
        self.sources = [PictureFile(f"sample {number}", 100 + number, 1_000 + number) for number in range(num_images)]
        self.decoded: list[int] = []
        self.versions = [0] * num_images

    def pixels(self, position: int) -> Pixels:
        return np.random.default_rng([position, self.versions[position]]).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)

    def read(self, position: int) -> Pixels:
        self.decoded.append(position)
        return self.pixels(position)

    def edit(self, position: int) -> None:
        self.versions[position] += 1
        self.sources[position] = replace(self.sources[position], mtime_ns=self.sources[position].mtime_ns + 1)

    def all(self) -> Pixels:
        return np.stack([self.pixels(position) for position in range(len(self.sources))])

    def again(self) -> Pictures:
        self.decoded = []
        return self


Open = Callable[..., PixelCache]


@pytest.fixture
def open_disk(tmp_path: Path) -> Open:
    def open_it(
        pictures: Pictures, *, capacity_rows: int = 100, recipe: str = "", read: Callable[[int], Pixels] | None = None
    ) -> PixelCache:
        plan = Choice("cache", "disk", "a test", {"capacity_rows": capacity_rows})
        return open_cache(
            plan, pictures.sources, folder=tmp_path / "pixels", height=HEIGHT, width=WIDTH,
            read=read or pictures.read, recipe=recipe, segment_bytes=3 * ROW_BYTES,
        )  # fmt: skip

    return open_it


def fill(pictures: Pictures, open_it: Open) -> None:
    with open_it(pictures) as cache:
        cache.rows(range(len(pictures.sources)))
    pictures.again()


@pytest.mark.parametrize(("mode", "decodes"), [("ram", 1), ("disk", 1), ("none", 2)])
def test_every_cache_mode_same_pixels(tmp_path: Path, mode: str, decodes: int) -> None:
    pictures = Pictures(7)
    plan = plan_cache(7, HEIGHT, WIDTH, ram_budget_bytes=GIB, disk_free_bytes=5 * GIB, mode=mode)  # type: ignore[arg-type]
    with open_cache(plan, pictures.sources, folder=tmp_path, height=HEIGHT, width=WIDTH, read=pictures.read) as cache:
        for _ in range(2):
            np.testing.assert_array_equal(cache.rows([3, 0, 6, 1, 2, 5, 4]), pictures.all()[[3, 0, 6, 1, 2, 5, 4]])
    assert len(pictures.decoded) == decodes * 7


def test_what_was_kept_is_served_after_opening_again(open_disk: Open) -> None:
    pictures = Pictures(10)
    fill(pictures, open_disk)
    with open_disk(pictures) as cache:
        assert cache.num_valid == 10
        np.testing.assert_array_equal(cache.rows(range(10)), pictures.all())
    assert pictures.decoded == []


def test_changed_file_decoded_again_alone(open_disk: Open) -> None:
    pictures = Pictures(5)
    fill(pictures, open_disk)
    pictures.edit(2)
    for _ in range(2):
        with open_disk(pictures) as cache:
            np.testing.assert_array_equal(cache.rows(range(5)), pictures.all())
    assert pictures.decoded == [2]


def test_touched_file_not_decoded_again(open_disk: Open) -> None:
    pictures = Pictures(2)
    pictures.sources = [replace(source, content=f"digest {source.sample_id}") for source in pictures.sources]
    fill(pictures, open_disk)
    pictures.sources[0] = replace(pictures.sources[0], mtime_ns=9)
    pictures.sources[1] = replace(pictures.sources[1], content="another")
    with open_disk(pictures) as cache:
        cache.rows([0, 1])
    assert pictures.decoded == [1]


def test_pictures_follow_reordered_table(open_disk: Open) -> None:
    pictures = Pictures(8)
    fill(pictures, open_disk)
    kept = [7, 0, 4]
    shorter = Pictures(8)
    shorter.sources = [pictures.sources[position] for position in kept] + [PictureFile("a new one", 1, 1)]
    with open_disk(shorter) as cache:
        np.testing.assert_array_equal(cache.rows([0, 1, 2]), pictures.all()[kept])
        cache.row(3)
    assert shorter.decoded == [3]


def test_reused_slot_never_serves_first_sample(open_disk: Open) -> None:
    first, second = Pictures(3), Pictures(3)
    second.sources = [PictureFile(f"other {number}", 1, 1) for number in range(3)]
    second.versions = [5, 5, 5]
    for pictures in (first, second, first):
        with open_disk(pictures) as cache:
            np.testing.assert_array_equal(cache.rows(range(3)), pictures.all())


def test_rows_beyond_capacity_decoded_each_time(open_disk: Open) -> None:
    pictures = Pictures(6)
    with open_disk(pictures, capacity_rows=4) as cache:
        for _ in range(3):
            np.testing.assert_array_equal(cache.rows(range(6)), pictures.all())
    assert sorted(pictures.decoded) == [0, 1, 2, 3, 4, 4, 4, 5, 5, 5]


def test_a_cache_may_grow_and_shrink(open_disk: Open) -> None:
    pictures = Pictures(9)
    for capacity_rows in (4, 9, 2, 9):
        with open_disk(pictures, capacity_rows=capacity_rows) as cache:
            np.testing.assert_array_equal(cache.rows(range(9)), pictures.all())


def test_pictures_made_by_another_recipe_are_not_served(open_disk: Open) -> None:
    pictures = Pictures(3)
    fill(pictures, open_disk)
    with open_disk(pictures, recipe="bicubic") as cache:
        assert cache.num_valid == 0


def test_failed_decode_raised_and_not_kept(open_disk: Open) -> None:
    def fail(position: int) -> Pixels:
        raise DecodeError("truncated", "it ends early")

    pictures = Pictures(2)
    with open_disk(pictures, read=fail) as cache, pytest.raises(DecodeError, match=r"^truncated: "):
        cache.rows([0])
    with open_disk(pictures) as cache:
        assert cache.num_valid == 0
        np.testing.assert_array_equal(cache.rows([0, 1]), pictures.all())


def test_a_flipped_bit_in_the_pixels_is_noticed_and_mended(open_disk: Open, tmp_path: Path) -> None:
    pictures = Pictures(4)
    fill(pictures, open_disk)
    flip(tmp_path / "pixels" / "pixels-000.bin", at=ROW_BYTES + 7)
    for _ in range(2):
        with open_disk(pictures) as cache:
            np.testing.assert_array_equal(cache.rows(range(4)), pictures.all())
    assert len(pictures.decoded) == 1


@pytest.mark.parametrize("length", [0, 1, RECORD.itemsize - 1, RECORD.itemsize, 3 * RECORD.itemsize + 5])
def test_a_torn_index_loses_only_the_rows_it_lost(open_disk: Open, tmp_path: Path, length: int) -> None:
    pictures = Pictures(4)
    fill(pictures, open_disk)
    with open_disk(pictures):  # opening rewrites the log to one record for each row
        pass
    index = tmp_path / "pixels" / "index.bin"
    index.write_bytes(index.read_bytes()[:length])
    with open_disk(pictures) as cache:
        assert cache.num_valid == length // RECORD.itemsize
        np.testing.assert_array_equal(cache.rows(range(4)), pictures.all())


def test_damaged_index_or_segment_costs_a_decode(open_disk: Open, tmp_path: Path) -> None:
    pictures = Pictures(7)
    fill(pictures, open_disk)
    flip(tmp_path / "pixels" / "index.bin", at=2 * RECORD.itemsize - 20)
    (tmp_path / "pixels" / "pixels-001.bin").unlink()
    with open_disk(pictures) as cache:
        np.testing.assert_array_equal(cache.rows(range(7)), pictures.all())


def flip(file: Path, *, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_threads_may_share_a_cache(open_disk: Open) -> None:
    pictures = Pictures(20)
    positions = [*range(20)] * 5
    with open_disk(pictures) as cache:
        shown = np.stack(list(map_ahead(cache.row, positions, threads=4, ahead=8)))
    np.testing.assert_array_equal(shown, pictures.all()[positions])
    pictures.again()
    with open_disk(pictures) as cache:
        np.testing.assert_array_equal(cache.rows(range(20)), pictures.all())
    assert pictures.decoded == []


def test_second_process_filling_cache_refused(open_disk: Open, tmp_path: Path) -> None:
    with open_disk(Pictures(1)), refused("pixel-cache-in-use", str(tmp_path)):
        open_disk(Pictures(1))


def test_what_a_cache_holds_on_disk_is_known(open_disk: Open, tmp_path: Path) -> None:
    assert held_bytes(tmp_path / "pixels") == 0
    fill(Pictures(7), open_disk)
    assert held_bytes(tmp_path / "pixels") >= 7 * ROW_BYTES


def test_wrong_pixel_shape_is_our_bug(open_disk: Open) -> None:
    with (
        open_disk(Pictures(1), read=lambda _: np.zeros((1, 1, 3), np.uint8)) as cache,
        pytest.raises(ValueError, match=r"\(1, 1, 3\).*\(6, 5, 3\)"),
    ):
        cache.row(0)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a descriptor limit")
def test_many_segments_need_few_descriptors(tmp_path: Path) -> None:
    code = f"""
import resource, sys
import numpy as np
from pathlib import Path
from unchoke.core.choices import Choice
from unchoke.pixels.pixel_cache import PictureFile, open_cache
sources = [PictureFile(str(number), 1, 1) for number in range(300)]
plan = Choice("cache", "disk", "a test", {{"capacity_rows": 300}})
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
for _ in range(2):
    with open_cache(plan, sources, folder=Path({str(tmp_path)!r}), height=4, width=4, segment_bytes=48,
                    read=lambda position: np.full((4, 4, 3), position % 256, np.uint8)) as cache:
        rows = cache.rows(range(300))
        rows = cache.rows(range(300))
        assert (rows[:, 0, 0, 0] == np.arange(300) % 256).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a file size limit")
def test_file_size_limit_keeps_valid_rows(tmp_path: Path) -> None:
    code = f"""
import resource, signal
import numpy as np
from pathlib import Path
from unchoke.core.choices import Choice
from unchoke.pixels.pixel_cache import PictureFile, open_cache
from unchoke.core.errors import MachineError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sources = [PictureFile(str(number), 1, 1) for number in range(200)]
def open_it():
    plan = Choice("cache", "disk", "a test", {{"capacity_rows": 200}})
    return open_cache(plan, sources, folder=Path({str(tmp_path)!r}), height=2, width=2,
                      read=lambda position: np.full((2, 2, 3), position, np.uint8))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
with open_it() as cache:
    try:
        cache.rows(range(200))
    except MachineError as error:
        assert error.code == "file-size-limit", error.code
    else:
        raise AssertionError("it fitted")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with open_it() as cache:
    assert 10 < cache.num_valid < 100, cache.num_valid
    assert (cache.rows(range(200))[:, 0, 0, 0] == np.arange(200)).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_opening_leaves_no_thread_behind(open_disk: Open) -> None:
    before = threading.active_count()
    fill(Pictures(2), open_disk)
    assert threading.active_count() == before


# ---- the plan


def plan(num_images: int, *, ram: int, disk: int, mode: str | None = None) -> Choice:
    return plan_cache(num_images, 1024, 1024, ram_budget_bytes=ram, disk_free_bytes=disk, mode=mode)  # type: ignore[arg-type]


def test_cache_prefers_ram_disk_part_none() -> None:
    picture = 3 * 2**20
    assert plan(100, ram=100 * picture, disk=0).value == "ram"
    assert plan(100, ram=99 * picture, disk=GIB + 100 * picture).value == "disk"
    part = plan(100, ram=0, disk=GIB + 40 * picture)
    assert (part.value, part.evidence["capacity_rows"]) == ("disk", 40)
    assert "40" in part.reason
    nothing = plan(100, ram=0, disk=GIB + 10 * picture)
    assert (nothing.value, nothing.evidence["capacity_rows"]) == ("none", 0)


def test_the_reason_holds_the_numbers() -> None:
    reason = plan(1000, ram=8 * GIB, disk=0).reason
    assert all(number in reason for number in ("1,000", "1024×1024", "3.1 GB"))


@pytest.mark.parametrize("mode", ["ram", "disk"])
def test_given_cache_mode_that_does_not_fit(mode: str) -> None:
    with refused("cache-does-not-fit", f"--cache {mode}", "3.1 GB", "1.1 GB", "2.1 GB"):
        plan(1000, ram=GIB, disk=2 * GIB, mode=mode)


def test_a_given_mode_that_fits_is_taken() -> None:
    choice = plan(10, ram=GIB, disk=4 * GIB, mode="disk")
    assert (choice.value, choice.evidence["capacity_rows"]) == ("disk", 10)
    assert plan(10, ram=GIB, disk=0, mode="none").value == "none"


def test_cache_reader_shares_and_adds_nothing(tmp_path: Path) -> None:
    pictures = Pictures(9)
    plan = Choice("cache", "disk", "a test", {"capacity_rows": 9})
    where = {"folder": tmp_path, "height": HEIGHT, "width": WIDTH, "read": pictures.read, "segment_bytes": 3 * ROW_BYTES}
    with open_cache(plan, pictures.sources, **where) as owner:  # type: ignore[arg-type]
        owner.rows(range(5))
        index = (tmp_path / "index.bin").read_bytes()
        with open_cache(plan, pictures.sources[3:], **where, reader=True) as reader:  # type: ignore[arg-type]
            assert reader.missing().tolist() == [2, 3, 4, 5]
            pictures.again()
            assert np.array_equal(reader.rows([0, 1]), pictures.all()[3:5])
            assert pictures.decoded == []
            reader.row(4)
            reader.row(4)
            assert (reader.misses, reader.num_valid) == (2, 2)
        assert (tmp_path / "index.bin").read_bytes() == index
        assert np.array_equal(owner.rows(range(9)), pictures.all())


def test_a_reader_without_a_cache_to_read_is_refused(tmp_path: Path) -> None:
    pictures = Pictures(2)
    plan = Choice("cache", "disk", "a test", {"capacity_rows": 2})
    with refused("no-pixel-cache", str(tmp_path)):
        open_cache(plan, pictures.sources, folder=tmp_path, height=HEIGHT, width=WIDTH, read=pictures.read, reader=True)


def test_what_is_missing_is_told_by_position(open_disk: Open) -> None:
    pictures = Pictures(4)
    with open_disk(pictures) as cache:
        cache.rows([1, 3])
        assert cache.missing().tolist() == [0, 2]
