"""Rules about making samples: the file system, decoding, parsing and transforms inside a Dataset.

In: a `TrainingFigures`. Out: causes with the seconds they cost. A second of decoding is claimed by one rule alone, the most
specific.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from unchoke.chokes.diagnose.training_figures import MAKING, TrainingFigures
from unchoke.chokes.recording import CallRow
from unchoke.core.findings import Cause, CodeLine, per
from unchoke.core.units import format_bytes, format_seconds

_OVERSIZED = 4
"""From how many times the pixels used on a picture counts as too large."""
_DRAFT_SAVES = {2: 0.6, 4: 0.82, 8: 0.92}
"""Of decoding and shrinking, by decoding JPEGs at a half, a quarter or an eighth of their size: estimates for ranking."""
_ROOM_SHARE = 0.3
_AGAIN = 1.4
_GDAL_SHARE, _PIXEL_BYTES = 0.05, 4
"""Of the machine's memory, what GDAL keeps of blocks unless told otherwise; and what a number in a raster takes at the most."""
_RESIZING = ("resize", "crop", "to_array")


def stat_per_sample(run: TrainingFigures) -> Iterator[Cause]:
    """Existence checks for every sample: one is cheap, but they are made for every candidate in every epoch."""
    rows = run.calls("stat")
    count = sum(row.count for row in rows)
    row = next(iter(rows), None)
    if row is None or per(count, run.made_samples) < 1.5:
        return
    each = per(count, run.made_samples)
    yield Cause(
        "stat-per-sample",
        "stat",
        run.around_s(*(one for one in rows if one.function == row.function)),
        f"{each:.1f} file-system checks (exists, stat) for every sample, {count:,} in all",
        "look the paths up once, in __init__: list each folder once, keep a dictionary from name to path, and use that",
        CodeLine.of(row),
        {"checks_per_sample": each, "checks": count, "example": row.example, "remedy": "cached-stat"},
        "self.paths = {entry.name: entry.path for folder in reversed(folders) for entry in os.scandir(folder)}  # in __init__",
    )


def list_per_sample(run: TrainingFigures) -> Iterator[Cause]:
    """A folder listed for every sample."""
    rows = run.calls("list")
    row = next(iter(rows), None)
    count = sum(one.count for one in rows)
    if row is None or per(count, run.made_samples) < 0.2:
        return
    yield Cause(
        "list-per-sample",
        "list",
        run.around_s(*(one for one in rows if one.function == row.function)),
        f"a folder is listed {per(count, run.made_samples):.1f} times for every sample "
        f"({per(row.amount, row.count):,.0f} entries each time)",
        "list the folder once, in __init__, and keep a dictionary from what is looked up (an id, a stem) to the path",
        CodeLine.of(row),
        {"listings_per_sample": per(count, run.made_samples), "entries": per(row.amount, row.count), "remedy": "cached-stat"},
        "self.files = {path.stem: path for path in Path(folder).iterdir()}  # in __init__",
    )


def oversized_decode(run: TrainingFigures) -> Iterator[Cause]:
    """JPEGs decoded in full although the network sees a fraction of them: they can be decoded smaller at once."""
    for row in _oversized(run):
        ratio = _oversize(run, row)
        resizing_s = run.on_path_s(sum(one.seconds for one in _shrinking(run, row)))
        px = row.detail.get("width_px", 0), row.detail.get("height_px", 0)
        divisor, side = _draft(run, row)
        yield Cause(
            "oversized-decode",
            "decode",
            _DRAFT_SAVES[divisor] * (run.cost_s(row) + resizing_s),
            f"JPEGs of {px[0]}×{px[1]} are decoded in full, {ratio:.0f} times the {run.used_px:,} pixels that are used",
            "decode them smaller at once: JPEG can be decoded at a half, a quarter or an eighth of its size, which Pillow does "
            "with draft() before the pixels are loaded (they change a little by it)",
            CodeLine.of(row),
            {"decoded_to_used": ratio, "divisor": divisor, "decode_s": row.seconds, "decodes": row.count, "remedy": "draft-jpeg"},
            f'image = Image.open(path); image.draft("RGB", ({side}, {side}))  # then convert and resize as before',
        )


def repeated_decode(run: TrainingFigures) -> Iterator[Cause]:
    """Pictures decoded again in every epoch that would fit in memory once they are small."""
    large = {(row.phase, row.file, row.line) for row in _oversized(run)}
    for row in run.calls("decode"):
        if (row.phase, row.file, row.line) in large or per(row.count, row.distinct) < _AGAIN or run.used_px is None:
            continue
        files = min(row.distinct, run.trained.num_samples or row.distinct) if run.trained else row.distinct
        room = files * run.used_px * 3
        if room > _ROOM_SHARE * float(run.recording.machine.get("memory_bytes") or 8e9):
            continue
        again = 1 - per(files, row.count)
        timed_s = row.seconds + sum(one.seconds for one in run.calls("open", "read", *_RESIZING) if one.function == row.function)
        seen_s = run.sampled_s("getitem", stages=("decode", "open", "read", "transform"), file=row.file, function=row.function)
        kind = row.detail.get("format") or "picture"
        yield Cause(
            "repeated-decode",
            "decode",
            run.on_path_s(again * max(timed_s, min(seen_s, 1.3 * timed_s))),
            f"{files:,} {kind} files were decoded {per(row.count, files):.1f} times each; in the size that is used they take "
            f"{format_bytes(room)} of memory",
            "decode every picture once (and shrink it to what is used), keep it as a uint8 array, and augment what is kept",
            CodeLine.of(row),
            {"files": files, "decodes": row.count, "decode_s": row.seconds, "kept_bytes": room, "remedy": "cached-decode"},
            "self.pictures = [load(path) for path in self.paths]  # in __init__: decoded, in the size that is used, uint8",
        )


def reopened_file(run: TrainingFigures) -> Iterator[Cause]:
    """A few files opened again for every window or sample, where one handle would do."""
    for row in run.calls("raster_open", "open"):
        again = per(row.count, row.distinct)
        few = row.distinct <= max(1.0, run.made_samples / run.epochs / 4)
        # parsing and decoding have rules of their own
        parsed = row.kind == "open" and _calls_at(run, row.file, row.line, "csv", "decode", "npz", "load", "raster_open")
        if again < 8 or not few or parsed:
            continue
        reads = [one for one in run.calls("raster_read") if one.function == row.function] if row.kind == "raster_open" else []
        reading_s = sum(one.seconds for one in reads)
        # closing is met at the line that opens; blocks decoded for one window are forgotten with the handle
        opening_s = max(row.seconds, sum(seconds for one, seconds in run.looks if (one.file, one.line) == (row.file, row.line)))
        making_s = run.with_strays_s(opening_s + reading_s, CodeLine.of(row), *map(CodeLine.of, reads))
        kept_s = sum((1 - _blocks_again(run, one)) * one.seconds for one in reads)
        name = Path(row.example).name
        yield Cause(
            "reopened-file",
            "open",
            run.on_path_s(making_s - kept_s) if row.phase in MAKING else row.seconds,
            f"{name} is opened {again:,.0f} times ({per(row.count, run.made_samples):.1f} per sample)",
            "open it once in every process, when the first sample is read, and keep the handle: not in __init__, handles do not "
            "survive being sent to workers",
            CodeLine.of(row),
            {"opens": row.count, "files": row.distinct, "open_s": row.seconds, "read_s": reading_s, "remedy": "cached-rasters"},
            "if self.source is None: self.source = rasterio.open(path)  # in __getitem__; None in __init__"
            if row.kind == "raster_open"
            else "if self.source is None: self.source = open(path, 'rb')  # in __getitem__; None in __init__",
        )


def _blocks_again(run: TrainingFigures, row: CallRow) -> float:
    """The share of blocks that windows read again: a handle that stays keeps them, as far as GDAL's memory holds the scene."""
    sizes, blocks, windows = (row.detail.get(name) or (1, 1) for name in ("size_px", "block_px", "to_px"))
    in_scene = math.prod(math.ceil(size / block) for size, block in zip(sizes, blocks, strict=True)) * max(1, row.distinct)
    read = row.count * math.prod(1 + (window - 1) / block for window, block in zip(windows, blocks, strict=True))
    memory = _GDAL_SHARE * float(run.recording.machine.get("memory_bytes") or 8e9)
    scene_bytes = _PIXEL_BYTES * row.detail.get("bands", 1) * in_scene * math.prod(blocks)
    return float(max(0.0, 1 - in_scene / read) * min(1.0, memory / scene_bytes))


def compressed_npz(run: TrainingFigures) -> Iterator[Cause]:
    """Compressed NPZ members in the hot path: zlib runs for every sample of every epoch."""
    for row in run.calls("npz"):
        if not row.detail.get("compressed"):
            continue
        yield Cause(
            "compressed-npz",
            "read",
            0.95 * run.cost_s(row),
            f"every sample decompresses {format_bytes(per(row.amount, row.count))} of a compressed NPZ file "
            f"({format_seconds(per(row.seconds, row.count))} each)",
            "store the arrays uncompressed: np.save for one array a file, or np.savez instead of np.savez_compressed",
            CodeLine.of(row),
            {"loads": row.count, "npz_s": row.seconds, "bytes_each": per(row.amount, row.count), "remedy": "cached-decode"},
            "np.save(path.with_suffix('.npy'), array)  # once; then np.load(path.with_suffix('.npy'))",
        )


def parsed_per_sample(run: TrainingFigures) -> Iterator[Cause]:
    """A table or a JSON file parsed again for every sample."""
    for row in run.calls("csv"):
        again = per(row.count, row.distinct)
        if again < 8 or per(row.count, run.made_samples) < 0.2:
            continue
        yield Cause(
            "parsed-per-sample",
            "read",
            run.around_s(row),
            f"{Path(row.example).name or 'a table'} is parsed {row.count:,} times, "
            f"{per(row.count, run.made_samples):.1f} times a sample ({format_seconds(per(row.seconds, row.count))} each)",
            "parse it once, in __init__, and keep what samples need as plain lists, arrays or dictionaries",
            CodeLine.of(row),
            {"parses": row.count, "parse_s": row.seconds, "remedy": "cached-tables"},
            'table = pd.read_csv(path); self.labels = dict(zip(table["path"], table["label"]))  # in __init__',
        )


def transform_at_full_size(run: TrainingFigures) -> Iterator[Cause]:
    """Filters and colour work on pictures far larger than what is used afterwards."""
    if not run.used_px:
        return
    large = [
        row
        for row in run.calls("transform")
        if per(row.amount, row.count) >= _OVERSIZED * run.used_px and row.detail.get("name") != "convert"
    ]
    if not large:
        return
    px = max(per(row.amount, row.count) for row in large)
    names = sorted({str(row.detail.get("name")) for row in large})
    yield Cause(
        "transform-at-full-size",
        "transform",
        sum(run.cost_s(row) for row in large) * (1 - per(run.used_px, px)),
        f"{', '.join(names)} on {px:,.0f} pixels, {px / run.used_px:.0f} times as many as are used",
        "shrink the picture first, by the filter you use now, then blur and change colours, with a radius that shrinks alike",
        CodeLine.of(large[0]),
        {"transformed_to_used": px / run.used_px, "transform_s": sum(row.seconds for row in large), "names": names},
        "image = image.resize((size, size), Image.BILINEAR)  # then the filters; their radius times size / the width it had",
    )


def _oversized(run: TrainingFigures) -> list[CallRow]:
    return [row for row in run.calls("decode") if _oversize(run, row) >= _OVERSIZED and _draft(run, row)[0] > 1]


def _draft(run: TrainingFigures, row: CallRow) -> tuple[int, int]:
    """By how much a JPEG could be shrunk while it is decoded, and the side to ask for: twice what is used, or just that."""
    if row.detail.get("format") != "JPEG" or not run.used_px:
        return 1, 0
    short_px = min(row.detail.get("width_px", 0), row.detail.get("height_px", 0))
    side = round(run.used_px**0.5)
    for wanted in (2 * side, side):
        for divisor in (8, 4, 2):
            if short_px // divisor >= wanted:
                return divisor, wanted
    return 1, 0


def _oversize(run: TrainingFigures, row: CallRow) -> float:
    """Decoded pixels for each pixel that is used, as far as a smaller decode could have saved them."""
    return per(per(row.amount, row.count), run.used_px or 0)


def _shrinking(run: TrainingFigures, row: CallRow) -> list[CallRow]:
    """Resizes and copies of full-size pictures in the function that decodes."""
    return [
        one
        for one in run.calls("resize", "to_array", "transform")
        if one.function == row.function and one.detail.get("name") in (None, "convert")
    ]


def _calls_at(run: TrainingFigures, file: str, line: int, *kinds: str) -> bool:
    return any(row.file == file and row.line == line for row in run.calls(*kinds))
