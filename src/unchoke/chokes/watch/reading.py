"""Arrays, rasters and tables that the script reads and writes through libraries: NumPy, rasterio, h5py, pandas, JSON and others.

In: those libraries, as the script imports them. Out: calls of the kinds read (amount: bytes; arrays from .npy and HDF5), npz
(bytes of the arrays; detail: whether the member is compressed), raster_open, raster_read (pixels; detail: bands, blocks,
compression), open (HDF5 files), csv (bytes; tables, JSON, XML parsed), load (unpickled) and dump (tables, JSON, arrays, figures
written). Pictures are decoded elsewhere.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from unchoke.chokes.watch.hooks import CallFacts, Describe, argument, path_of, time_when_imported
from unchoke.chokes.watch.recorder import Recorder

_PARSERS = {
    "json": ("load",),
    "csv": ("reader",),
    "xml.etree.ElementTree": ("parse",),
    "pandas": ("read_csv", "read_table", "read_parquet", "read_excel", "read_json", "read_feather", "read_pickle", "read_hdf"),
    "numpy": ("loadtxt", "genfromtxt"),
}
"""Functions that parse a file, given as a path or open. `csv.reader` parses later: it is counted, not timed."""
_TEXT_PARSERS = {"json": ("loads",), "xml.etree.ElementTree": ("fromstring",), "yaml": ("load", "safe_load")}
"""Functions that parse a text they are given."""
_MAX_RASTERS = 64
_rasters: dict[str, dict[str, Any]] = {}


def install(recorder: Recorder) -> None:
    """Watch each library from the moment it is imported."""
    for module, place, kind, describe in _CALLS:
        time_when_imported(recorder, module, place, kind, describe)


def _file_parsed(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts:
    path = path_of(args[0] if args else next(iter(options.values()), None))
    return {"amount": _file_bytes(path), "key": path}


def _text_parsed(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts:
    source = args[0] if args else next(iter(options.values()), None)
    if not isinstance(source, str | bytes | bytearray):
        return _file_parsed(_, args, options)
    return {"amount": len(source)}


def _file_bytes(path: str | None) -> int:
    """Asked behind our own hooks."""
    if path is None:
        return 0
    try:
        stat = getattr(os.stat, "__wrapped__", os.stat)
        return int(stat(path).st_size)
    except (OSError, ValueError):
        return 0


def _written(at: int, _: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts:
    """`at`: which argument is the file."""
    names = ("fp", "file", "fname", "path_or_buf")
    target = args[at] if len(args) > at else next((options[name] for name in names if name in options), None)
    return {"key": path_of(target)}


def _array_loaded(array: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts | None:
    """Archives are read member by member later, and memory maps page by page: neither is this call's."""
    if not hasattr(array, "nbytes") or argument(args, options, 1, "mmap_mode"):
        return None
    return {"amount": array.nbytes, "key": path_of(argument(args, options, 0, "file"))}


def _member_loaded(array: Any, args: tuple[Any, ...], _: dict[str, Any]) -> CallFacts:
    archive, name = args[0], args[1]
    if hasattr(archive, "_files"):
        file = archive._files[name]
    else:  # older NumPy keeps no table of names
        file = name if name in archive.zip.namelist() else f"{name}.npy"
    member = archive.zip.getinfo(file)
    detail = {"member": member.filename, "compressed": member.compress_type != 0, "stored_bytes": member.compress_size}
    return {"amount": getattr(array, "nbytes", len(array)), "key": archive.zip.filename, "detail": detail}


def _raster_opened(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts | None:
    if argument(args, options, 1, "mode") not in (None, "r"):
        return None
    return {"key": path_of(argument(args, options, 0, "fp"))}


def _raster_read(array: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts:
    """`amount` counts each place once, however many bands were read there."""
    dataset = args[0]
    bands = array.shape[0] if array.ndim == 3 else 1
    detail = {**_raster_facts(dataset), "bands": bands, "to_px": [array.shape[-1], array.shape[-2]]}
    detail["windowed"] = options.get("window") is not None
    return {"amount": array.shape[-1] * array.shape[-2], "key": dataset.name, "detail": detail}


def _raster_facts(dataset: Any) -> dict[str, Any]:
    facts = _rasters.get(dataset.name)
    if facts is None:
        compression = getattr(dataset.compression, "value", None)
        facts = {"size_px": [dataset.width, dataset.height], "block_px": list(dataset.block_shapes[0])[::-1]}
        facts["compression"] = compression
        if len(_rasters) < _MAX_RASTERS:
            _rasters[dataset.name] = facts
    return facts


def _hdf5_opened(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> CallFacts:
    return {"key": path_of(argument(args, options, 1, "name"))}


def _dataset_read(array: Any, args: tuple[Any, ...], _: dict[str, Any]) -> CallFacts:
    dataset = args[0]
    detail = {"compression": dataset.compression, "chunks": list(dataset.chunks) if dataset.chunks else None}
    return {"amount": getattr(array, "nbytes", 0), "key": dataset.file.filename, "detail": detail}


_CALLS: tuple[tuple[str, str, str, Describe], ...] = (
    *((module, name, "csv", _file_parsed) for module, names in _PARSERS.items() for name in names),
    *((module, name, "csv", _text_parsed) for module, names in _TEXT_PARSERS.items() for name in names),
    ("pickle", "load", "load", _file_parsed),
    ("numpy", "load", "read", _array_loaded),
    ("numpy", "lib.npyio.NpzFile.__getitem__", "npz", _member_loaded),
    ("rasterio", "open", "raster_open", _raster_opened),
    ("rasterio", "io.DatasetReader.read", "raster_read", _raster_read),
    ("h5py", "File.__init__", "open", _hdf5_opened),
    ("h5py", "Dataset.__getitem__", "read", _dataset_read),
    ("json", "dump", "dump", partial(_written, 1)),
    ("json", "dumps", "dump", lambda text, *_: CallFacts(amount=len(text))),
    ("pickle", "dump", "dump", partial(_written, 1)),
    *(("numpy", name, "dump", partial(_written, 0)) for name in ("save", "savez", "savez_compressed", "savetxt")),
    ("pandas", "DataFrame.to_csv", "dump", partial(_written, 1)),
    ("matplotlib.figure", "Figure.savefig", "dump", partial(_written, 1)),
)
"""What is timed: where it stands in which module, the kind of call, and what says what it was about."""
