"""Open raster files as a budget: a bounded pool of rasterio datasets, and GDAL's settings in one place.

In: a path or a URL. Out: the open dataset, for the duration of a `with`, never one that another thread opened. What rasterio
raises, while opening or inside the `with`, leaves as a `SceneError` that names the file.

Scenes behind a URL are fetched by GDAL itself, part by part. It looks for credentials where the store's own tools do; address and
region of an S3 store are those that fsspec found (docs/decisions/0033-photos-come-by-fsspec-scenes-by-gdal.md).
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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import missing_extra
from unchoke.core.image_names import IMAGE_SUFFIXES, suffix_of
from unchoke.core.remote import RemotePlace, locate
from unchoke.core.stores import WAITS_S, find_s3
from unchoke.core.urls import is_url, root_of
from unchoke.pixels.image import DecodeError, read_image
from unchoke.scenes.scene_facts import FileStamp, Grid, SceneError

try:
    import rasterio
    from rasterio._err import CPLE_BaseError
    from rasterio.enums import Resampling
    from rasterio.env import hasenv
    from rasterio.errors import NotGeoreferencedWarning, RasterioError
    from rasterio.session import DummySession
    from rasterio.transform import Affine
    from rasterio.vrt import WarpedVRT
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

_PREFIXES = {"s3": "/vsis3/", "s3a": "/vsis3/", "gs": "/vsigs/", "gcs": "/vsigs/", "az": "/vsiaz/", "abfs": "/vsiaz/"}
_WEB = ("http", "https")
_PATIENCE = {
    "GDAL_HTTP_MAX_RETRY": str(len(WAITS_S)),
    "GDAL_HTTP_RETRY_DELAY": str(WAITS_S[0]),
    "GDAL_HTTP_CONNECTTIMEOUT": "10",
    "GDAL_HTTP_LOW_SPEED_TIME": "30",
    "GDAL_HTTP_LOW_SPEED_LIMIT": "1",
    "CPL_VSIL_CURL_NON_CACHED": ":".join(dict.fromkeys([*_PREFIXES.values(), "/vsicurl/"])),
}
"""A few tries, and nothing remembered of a file beyond its handle: one that is opened again may have been replaced."""

_Key = tuple[int, str, Grid | None, str]


@contextmanager
def raster_env(path: str = "") -> Iterator[None]:
    """GDAL's settings for opening and reading; cheap where they hold already, as inside another `raster_env`.

    For a URL those of its store come on top.

    Sidecar files are asked for by name: listing a folder of thousands of bands for every open would cost more than the open.
    """
    if is_url(path):
        with raster_env(), rasterio.Env(session=DummySession(), **_gdal_options(path)):
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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._given_limit,)

    @property
    def num_open(self) -> int:
        """How many datasets are open."""
        return len(self._handles)

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._handles: OrderedDict[_Key, _Handle] = OrderedDict()
        self._used = 0
        self._limit = self._given_limit
        self._photos: OrderedDict[str, tuple[FileStamp, NDArray[np.uint8]]] = OrderedDict()

    def _own(self) -> threading.Lock:
        """The lock, in the process that the datasets belong to.

        After a fork the parent's datasets are kept without closing them: closing takes locks of GDAL that a thread of the parent
        may have held, as it may have held this one.
        """
        if self._pid != os.getpid():
            self._inherited.append(self._handles)
            self._start()
        return self._lock

    @contextmanager
    def open(self, path: str, *, onto: Grid | None = None, resampling: str = "nearest") -> Iterator[Any]:
        """The dataset at `path`, or with `onto` a virtual one that lies on that grid, with an alpha band for where it is valid.

        A file that was replaced since it was opened is opened again. Must not outlive the `with`.
        """
        with _translated(path), raster_env(path):
            with _named(path):
                handle = self._take(path, onto, resampling)
            try:
                yield handle.dataset
            finally:
                self._give(handle)

    def photo(self, path: str) -> NDArray[np.uint8]:
        """The whole picture, height × width × RGB, upright; the last few are kept, within a bound on their bytes."""
        try:
            stamp = FileStamp.of(path)
            with self._own():
                kept = self._photos.get(path)
            if kept is not None and kept[0] == stamp:
                return kept[1]
            pixels = read_image(path)
        except (OSError, DecodeError) as error:
            raise unreadable(path, str(error)) from error
        with self._own():
            self._photos[path] = (stamp, pixels)
            while len(self._photos) > 1 and sum(photo.nbytes for _, photo in self._photos.values()) > _PHOTO_BYTES:
                self._photos.popitem(last=False)
        return pixels

    def close(self) -> None:
        """Close what is open and not in use; what is in use is closed when its `with` ends. The pool can be used again."""
        with self._own():
            for key in list(self._handles):
                self._drop(key)
            self._photos.clear()

    def _take(self, path: str, onto: Grid | None, resampling: str) -> _Handle:
        stamp = FileStamp.of(path, recent=True)
        thread = threading.current_thread()
        key = (id(thread), path, onto, resampling)
        cost = 1 if onto is None else _WARPED_COST
        with self._own():
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
            with self._own():
                self._used -= cost
            raise
        handle = _Handle(dataset, source, stamp, weakref.ref(thread), cost)
        with self._own():
            self._handles[key] = handle
        return handle

    def _give(self, handle: _Handle) -> None:
        with self._own():
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
        with self._own():
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
def _named(path: str) -> Iterator[None]:
    """What the system says of a file becomes a `SceneError` that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise unreadable(path, "the file is gone") from error
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error


def stamp_file(path: str) -> FileStamp:
    """The file's size and time now; a file that is gone, a pipe or a device is a `SceneError`."""
    with _named(path):
        return FileStamp.of(path)


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
        crs = {"crs": onto.crs} if onto.crs else {"crs": _NOWHERE, "src_crs": _NOWHERE}
        place = {"transform": Affine(*onto.transform), "width": onto.width, "height": onto.height, **crs}
        how = Resampling[resampling]
        return WarpedVRT(source, **place, resampling=how, add_alpha=True, tolerance=_EXACT_PX), source
    except BaseException:
        source.close()
        raise


def gdal_name(path: str) -> str:
    """What GDAL opens; a `SceneError` for a store that it does not know."""
    if not is_url(path):
        return path
    place = locate(path)
    if not isinstance(place, RemotePlace):
        return str(place)
    if place.scheme in _WEB:
        return f"/vsicurl/{place}"
    if place.scheme not in _PREFIXES:
        raise SceneError(
            f"{path} cannot be read as a scene",
            code="unreadable-scene",
            why=f"parts of rasters are read from {', '.join(f'{one}://' for one in ('s3', 'gs', 'az', *_WEB))} and local files",
            try_="copy the scenes to a folder of this machine, then give that folder",
            path=path,
        )
    return _PREFIXES[place.scheme] + place.url.partition("://")[2]


def _gdal_options(path: str) -> dict[str, str]:
    """The settings that reading `path` needs beside those of local files."""
    if not path.startswith(("s3://", "s3a://")):
        return dict(_PATIENCE)
    store = find_s3(root_of(path))
    address = store.endpoint_url.rstrip("/")
    options = {**_PATIENCE, "AWS_NO_SIGN_REQUEST": "YES" if store.anonymous else "NO"}
    if store.region:
        options["AWS_REGION"] = store.region
    if not address.endswith(".amazonaws.com"):
        options["AWS_S3_ENDPOINT"] = address.partition("://")[2]
        options["AWS_HTTPS"] = "YES" if address.startswith("https:") else "NO"
        options["AWS_VIRTUAL_HOSTING"] = "FALSE"
    return options
