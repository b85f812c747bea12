"""Open raster files as a budget: a bounded pool of rasterio datasets, and GDAL's settings in one place.

In: a path or a URL. Out: the open dataset, for the duration of a `with`, never one that another thread opened. What rasterio
raises, while opening or inside the `with`, leaves as a `SceneError` that names the file. Which pixels to read is decided in
`raster`.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import missing_extra
from unchoke.core.image_names import IMAGE_SUFFIXES, suffix_of
from unchoke.core.urls import is_url
from unchoke.pixels.image import DecodeError, read_image
from unchoke.scenes.gdal_places import gdal_name, gdal_options
from unchoke.scenes.scene_facts import FileStamp, Grid, SceneError

try:
    import rasterio
    from rasterio._err import CPLE_BaseError
    from rasterio.env import hasenv
    from rasterio.errors import NotGeoreferencedWarning, RasterioError
    from rasterio.session import DummySession
except ImportError as error:
    raise missing_extra("rasterio", extra="geo", purpose="reading scenes") from error

CACHE_BYTES = 128 * 2**20
"""GDAL's block cache, for the whole process: two strips of four wide bands, so that no block of a strip is decoded twice."""
MOST_HANDLES = 128
"""More would only hold memory: scenes are read one after the other."""
_PHOTO_BYTES = 256 * 2**20
_FEW_HANDLES = 2
_DRIVERS = frozenset(
    {"GTiff", "JP2OpenJPEG", "JP2KAK", "JP2ECW", "JP2MrSID", "JPEG", "PNG", "GIF", "BIGGIF", "BMP", "WEBP", "PNM", "AVIF", "HEIF"}
)
_WARPED_COST = 2  # the file and the virtual dataset over it
_EXACT_PX = 1e-9
"""How far GDAL may misplace a pixel: too little for its value to depend on the window it is read in. (rasterio breaks at 0.)"""
_NOWHERE = 'LOCAL_CS["plain coordinates",UNIT["metre",1]]'
"""Stands on both sides of a warp between files without a CRS: rasterio wants one, and equal ones change nothing."""

_Key = tuple[int, str, Grid | None, str]


@contextmanager
def raster_env(path: str = "") -> Iterator[None]:
    """GDAL's settings for opening and reading; cheap where they hold already, as inside another `raster_env`.

    For a URL those of its store come on top.

    Sidecar files are asked for by name: listing a folder of thousands of bands for every open would cost more than the open.
    """
    if is_url(path):
        with raster_env(), rasterio.Env(session=DummySession(), **gdal_options(path)):
            yield
        return
    if hasenv():
        yield
        return
    # A filter, not `catch_warnings`: that is not safe in threads. Files without a place on the map are welcome here.
    warnings.filterwarnings("ignore", category=NotGeoreferencedWarning)
    with rasterio.Env(GDAL_CACHEMAX=CACHE_BYTES, GDAL_DISABLE_READDIR_ON_OPEN="TRUE", GDAL_ERROR_ON_LIBJPEG_WARNING="YES"):
        yield


def choose_limit() -> int:
    """How many files may be open at once: the descriptor limit, less what is open now and a reserve for everything else."""
    import psutil

    try:
        import resource

        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        unlimited = allowed == resource.RLIM_INFINITY
        open_now = psutil.Process().num_fds()
    except ImportError:  # not a Unix: the C runtime's own limit
        allowed, unlimited, open_now = 512, False, 0
    reserve = max(12, allowed // 4)
    room = MOST_HANDLES if unlimited else allowed - open_now - reserve
    return max(_FEW_HANDLES, min(MOST_HANDLES, room))


@dataclass(eq=False)
class _Handle:
    """An open dataset, the thread that may use it, and how often it is in use just now."""

    dataset: Any
    source: Any
    stamp: FileStamp
    thread: weakref.ref[threading.Thread]
    cost: int
    uses: int = 1
    dropped: bool = False

    def close(self) -> None:
        self.dataset.close()
        if self.source is not None:
            self.source.close()

    @property
    def orphaned(self) -> bool:
        thread = self.thread()
        return thread is None or not thread.is_alive()


class HandlePool:
    """Open raster files of this process, the least recently used closed first when there are too many.

    Threads share the budget but not the datasets. A child made by fork starts with an empty pool and leaves the inherited
    datasets alone; a pool that is pickled arrives empty. `limit` counts files (None: from the descriptor limit, when first used).
    When every open file is in use the pool goes over its limit instead of waiting, which could wait for ever.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._given_limit = limit
        self._inherited: list[object] = []
        self._start()
        _pools_of_this_process().add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"limit": self._given_limit}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["limit"])  # type: ignore[misc]

    @property
    def num_open(self) -> int:
        """How many datasets are open."""
        return len(self._handles)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._handles: OrderedDict[_Key, _Handle] = OrderedDict()
        self._used = 0
        self._limit = self._given_limit
        self._photos: OrderedDict[str, tuple[FileStamp, NDArray[np.uint8]]] = OrderedDict()

    def _restart_after_fork(self) -> None:
        """Forget the parent's datasets without closing them: closing takes locks of GDAL that a thread of the parent may hold."""
        self._inherited.append(self._handles)
        self._start()

    @contextmanager
    def open(self, path: str, *, onto: Grid | None = None, resampling: str = "nearest") -> Iterator[Any]:
        """The dataset at `path`, or with `onto` a virtual one that lies on that grid, with an alpha band for where it is valid.

        A file that was replaced since it was opened is opened again. Must not outlive the `with`.
        """
        with _translated(path), raster_env(path):
            try:
                handle = self._take(path, onto, resampling)
            except FileNotFoundError as error:
                raise unreadable(path, "the file is gone") from error
            except OSError as error:
                raise unreadable(path, str(error)) from error
            try:
                yield handle.dataset
            finally:
                self._give(handle)

    def photo(self, path: str) -> NDArray[np.uint8]:
        """The whole picture, height × width × RGB, upright; the last few are kept, within a bound on their bytes."""
        try:
            stamp = FileStamp.of(path)
            with self._lock:
                kept = self._photos.get(path)
            if kept is not None and kept[0] == stamp:
                return kept[1]
            pixels = read_image(path)
        except (OSError, DecodeError) as error:
            raise unreadable(path, str(error)) from error
        with self._lock:
            self._photos[path] = (stamp, pixels)
            while len(self._photos) > 1 and sum(photo.nbytes for _, photo in self._photos.values()) > _PHOTO_BYTES:
                self._photos.popitem(last=False)
        return pixels

    def close(self) -> None:
        """Close what is open and not in use; what is in use is closed when its `with` ends. The pool can be used again."""
        with self._lock:
            for key in list(self._handles):
                self._drop(key)
            self._photos.clear()

    def _take(self, path: str, onto: Grid | None, resampling: str) -> _Handle:
        stamp = FileStamp.of(path, recent=True)
        thread = threading.current_thread()
        key = (id(thread), path, onto, resampling)
        cost = 1 if onto is None else _WARPED_COST
        with self._lock:
            handle = self._handles.get(key)
            # the thread is compared as well: a new one may have got the address of one that ended
            if handle is not None and handle.stamp == stamp and handle.thread() is thread:
                self._handles.move_to_end(key)
                handle.uses += 1
                return handle
            if handle is not None:
                self._drop(key)
            for orphan in [other for other, one in self._handles.items() if one.orphaned]:
                self._drop(orphan)
            self._make_room(cost)
            self._used += cost
        try:
            dataset, source = self._open_file(path, onto, resampling)
        except BaseException:
            with self._lock:
                self._used -= cost
            raise
        handle = _Handle(dataset, source, stamp, weakref.ref(thread), cost)
        with self._lock:
            self._handles[key] = handle
        return handle

    def _give(self, handle: _Handle) -> None:
        with self._lock:
            handle.uses -= 1
            if handle.dropped and handle.uses == 0:
                handle.close()
                self._used -= handle.cost

    def _open_file(self, path: str, onto: Grid | None, resampling: str) -> tuple[Any, Any]:
        """Open it; out of descriptors, close half of what is idle, keep to that from now on, and try once more."""
        try:
            return _open_dataset(path, onto, resampling)
        except (OSError, RasterioError) as error:
            if "too many open files" not in str(error).lower():
                raise
        with self._lock:
            self._limit = max(_FEW_HANDLES, self._used // 2)
            self._make_room(0)
        return _open_dataset(path, onto, resampling)

    def _make_room(self, cost: int) -> None:
        """Close idle datasets, the oldest first, until `cost` more fit. The caller holds the lock."""
        if self._limit is None:
            self._limit = choose_limit()
        for key in list(self._handles):
            if self._used + cost <= self._limit:
                return
            if self._handles[key].uses == 0:
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        """Take a dataset out of the pool and close it, now or when its last use ends. The caller holds the lock."""
        handle = self._handles.pop(key)
        handle.dropped = True
        if handle.uses == 0:
            handle.close()
            self._used -= handle.cost


def unreadable(path: str, why: str) -> SceneError:
    """The error for a file that cannot be opened or read."""
    return SceneError(
        f"{path} cannot be read",
        code="unreadable-scene",
        why=why,
        try_="check the file with gdalinfo -checksum, fetch it again, or take it out",
        path=path,
    )


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """What rasterio raises becomes a `SceneError` in GDAL's own words, from which rasterio raises a general sentence."""
    try:
        yield
    except (RasterioError, CPLE_BaseError) as error:
        raise unreadable(path, str(error.__cause__ or error)) from error


def _open_dataset(path: str, onto: Grid | None, resampling: str) -> tuple[Any, Any]:
    """(dataset, None), or (virtual dataset on the grid, the file's own)."""
    source = rasterio.open(gdal_name(path))
    try:
        # a picture by its name must be one, and no description that leads GDAL to other files or into the network
        if suffix_of(path) in IMAGE_SUFFIXES and source.driver not in _DRIVERS:
            raise unreadable(path, f"its content is of the kind {source.driver}, which its name does not say")
        if onto is None:
            return source, None
        return _warp(source, onto, resampling), source
    except BaseException:
        source.close()
        raise


def _warp(source: Any, onto: Grid, resampling: str) -> Any:
    from rasterio.enums import Resampling
    from rasterio.transform import Affine
    from rasterio.vrt import WarpedVRT

    place = {"transform": Affine(*onto.transform), "width": onto.width, "height": onto.height, "crs": onto.crs or _NOWHERE}
    if not onto.crs:
        place["src_crs"] = _NOWHERE
    return WarpedVRT(source, **place, resampling=Resampling[resampling], add_alpha=True, tolerance=_EXACT_PX)


@cache
def _pools_of_this_process() -> weakref.WeakSet[HandlePool]:
    """Every pool. A fork may happen while another thread holds a pool's lock: the child's only thread renews it at once."""
    pools: weakref.WeakSet[HandlePool] = weakref.WeakSet()

    def renew() -> None:
        for pool in list(pools):
            pool._restart_after_fork()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)
    return pools
