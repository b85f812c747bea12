"""Scenes whose bands are broken or do not belong together, and masks that do not fit them: met by `tile` and `segment train`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bad_case import BadCase, Due, Make, Stage, pipe, sparse

EAST, NORTH, STEP = 500_000.0, 5_200_000.0, 10.0
BANDS = ("B2", "B3", "B4")


def write_band(
    file: Path, *, side: int = 96, east: float = EAST, crs: str | None = "EPSG:32633", step: float = STEP, **more: Any
) -> Path:
    """One band of noise on a map."""
    import numpy as np
    import rasterio

    values = more.pop("values", None)
    dtype = more.pop("dtype", "uint16")
    pixels = np.random.default_rng(side).integers(1, 4000, (side, side)).astype(dtype) if values is None else values
    place = {} if crs is None else {"crs": crs, "transform": rasterio.Affine(step, 0, east, 0, -step, NORTH)}
    profile = {
        "driver": "GTiff",
        "height": pixels.shape[0],
        "width": pixels.shape[1],
        "count": 1,
        "dtype": pixels.dtype,
        **place,
        **more,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with rasterio.open(file, "w", **profile) as opened:
        opened.write(pixels, 1)
    return file


def scene(folder: Path, name: str = "s1", **more: Any) -> Path:
    for band in BANDS:
        write_band(folder / f"{name}_{band}.tif", **more)
    return folder


def _cut(file: Path, share: float) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])


def _flip(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    for place in range(4, 60):
        whole[place] ^= 0xFF
    file.write_bytes(bytes(whole))


def _full(value: Any, dtype: str) -> Any:
    import numpy as np

    return np.full((96, 96), value, dtype)


def _huge_tiff(file: Path) -> None:
    """A header that claims two million pixels a side."""
    entries = [(256, 4, 1, 2_000_000), (257, 4, 1, 2_000_000), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8)]
    entries += [(277, 3, 1, 1), (278, 4, 1, 2_000_000), (279, 4, 1, 100)]
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    file.write_bytes(b"II*\0" + struct.pack("<IH", 8, len(entries)) + body + bytes(200))


Spoil = Callable[[Path], object]
_ONE = "s1_B3.tif"
# Name: (what is done to the folder of a sound scene, what is due, what must be said)
SCENES: dict[str, tuple[Spoil, Due, str]] = {
    "a band cut short": (lambda folder: _cut(folder / _ONE, 0.5), "named", "B3"),
    "a band of few bytes": (lambda folder: _cut(folder / _ONE, 0.01), "named", "B3"),
    "a band of no bytes": (lambda folder: (folder / _ONE).write_bytes(b""), "named", "B3"),
    "a band of text": (lambda folder: (folder / _ONE).write_text("text"), "named", "B3"),
    "a band with a broken header": (lambda folder: _flip(folder / _ONE), "named", "B3"),
    "a band that is missing": (lambda folder: (folder / _ONE).unlink(), "handled", ""),
    "a band that is a pipe": (lambda folder: ((folder / _ONE).unlink(), pipe(folder / _ONE)), "named", "B3"),
    "a band that is /dev/zero": (
        lambda folder: ((folder / _ONE).unlink(), (folder / _ONE).symlink_to("/dev/zero")),
        "named",
        "B3",
    ),
    "a band that is a folder": (lambda folder: ((folder / _ONE).unlink(), (folder / _ONE).mkdir()), "handled", ""),
    "a band that leads nowhere": (lambda folder: ((folder / _ONE).unlink(), (folder / _ONE).symlink_to("x")), "named", "B3"),
    "a band of 2,000,000 a side": (lambda folder: _huge_tiff(folder / _ONE), "named", "B3"),
    "a band of 8 GB of nothing": (lambda folder: sparse(folder / _ONE, 8_000_000_000), "named", "B3"),
    "a band of another projection": (lambda folder: write_band(folder / _ONE, crs="EPSG:32616"), "named", "B3|projection|CRS"),
    "a band without projection": (lambda folder: write_band(folder / _ONE, crs=None), "named", "B3|projection|CRS"),
    "a band far away": (lambda folder: write_band(folder / _ONE, east=EAST + 1e6), "named", "B3|overlap"),
    "a band shifted by half": (lambda folder: write_band(folder / _ONE, east=EAST + 48 * STEP), "named", "B3"),
    "a band shifted by half a pixel": (lambda folder: write_band(folder / _ONE, east=EAST + STEP / 2), "handled", ""),
    "a coarser band": (lambda folder: write_band(folder / _ONE, side=48, step=2 * STEP), "fine", ""),
    "a band of another size": (lambda folder: write_band(folder / _ONE, side=64), "named", "B3"),
    "a band of floats with nan": (
        lambda folder: write_band(folder / _ONE, values=_full(float("nan"), "float32")),
        "named",
        "B3|valid",
    ),
    "a band of infinities": (
        lambda folder: write_band(folder / _ONE, values=_full(float("inf"), "float32")),
        "named",
        "B3|valid|finite",
    ),
    "a band of nothing but nodata": (
        lambda folder: write_band(folder / _ONE, values=_full(0, "uint16"), nodata=0),
        "named",
        "B3|valid",
    ),
    "a constant band": (lambda folder: write_band(folder / _ONE, values=_full(7, "uint16")), "handled", ""),
    "a band of 64-bit numbers": (lambda folder: write_band(folder / _ONE, dtype="float64"), "handled", ""),
    "a band of complex numbers": (lambda folder: write_band(folder / _ONE, dtype="complex64"), "named", "B3|complex"),
    "one pixel a side": (lambda folder: scene(folder, side=1), "handled", ""),
    "a second scene that is broken": (lambda folder: (scene(folder, "s2"), _cut(folder / "s2_B2.tif", 0.3)), "named", "s2"),
    "a mask among the scenes": (lambda folder: write_band(folder / "s1_mask.tif", dtype="uint8"), "handled", ""),
    "photos beside it": (lambda folder: (folder / "cat.jpg").write_bytes(_photo()), "handled", ""),
    "an empty folder": (lambda folder: [file.unlink() for file in list(folder.iterdir())], "refused", ""),
}
_MASK = ("--mask", "B3 > B4")
# Name: (further words, what is due, what must be said)
ASKED: dict[str, tuple[tuple[str, ...], Due, str]] = {
    "a mask of unknown bands": (("--mask", "B9 > B4"), "refused", "B9"),
    "a mask that does not parse": (("--mask", "B3 >"), "refused", ""),
    "a mask that imports": (("--mask", "__import__('os').system('touch pwned')"), "refused", ""),
    "a mask that climbs": (("--mask", "B3.__class__.__mro__"), "refused", ""),
    "a mask that calls": (("--mask", "(lambda: 1)()"), "refused", ""),
    "a mask of no truth": (("--mask", "B3 + B4"), "refused", ""),
    "a mask of a huge power": (("--mask", "9**9**9 > B3"), "handled", ""),
    "a mask nested 5,000 deep": (("--mask", "(" * 5000 + "B3" + ")" * 5000 + " > 1"), "refused", ""),
    "an empty mask": (("--mask", ""), "handled", ""),
    "a mask that divides by nothing": (("--mask", "B3 / 0 > 1"), "handled", ""),
    "a mask that is always true": (("--mask", "B3 > -1"), "handled", ""),
    "bands that are not there": ((*_MASK, "--bands", "B2,B9"), "refused", "B9"),
    "a band twice": ((*_MASK, "--bands", "B2,B2,B3,B4"), "refused", "B2"),
    "a grid that is none": ((*_MASK, "--grid", "B9"), "refused", "B9"),
    "a grid of nothing": ((*_MASK, "--grid", "0"), "refused", ""),
    "a grid below nothing": ((*_MASK, "--grid", "-10"), "refused", ""),
    "a grid of nan": ((*_MASK, "--grid", "nan"), "refused", ""),
    "a grid of a nanometre": ((*_MASK, "--grid", "0.000001"), "refused", ""),
    "a grid beyond the scene": ((*_MASK, "--grid", "1000000"), "handled", ""),
    "normalised by nothing": ((*_MASK, "--normalise", "0"), "refused", ""),
    "normalised upside down": ((*_MASK, "--normalise", "percentile:98,2"), "refused", ""),
    "normalised beyond all": ((*_MASK, "--normalise", "percentile:0,200"), "refused", ""),
    "normalised by unknown bands": ((*_MASK, "--normalise", "B9=10000"), "refused", "B9"),
    "an overlap as large as the tile": ((*_MASK, "--overlap", "32"), "refused", ""),
    "polygons that are not there": (("--polygons", "p.geojson"), "refused", "p.geojson"),
    "polygons of text": (("--polygons", "text.geojson"), "refused", "text.geojson"),
    "polygons of an empty file": (("--polygons", "empty.geojson"), "refused", "empty.geojson"),
    "polygons far away": (("--polygons", "far.geojson"), "named", "polygon|far"),
    "polygons that are points": (("--polygons", "points.geojson"), "named", "polygon|point"),
    "polygons from a pipe": (("--polygons", "pipe.geojson"), "refused", "pipe.geojson"),
    "a field the polygons lack": (("--polygons", "near.geojson", "--polygon-class", "kind"), "refused", "kind"),
    "a label that is not there": (("--label", "label.tif"), "refused", "label"),
    "a label of text": (("--label", "text.tif"), "named", "text.tif"),
    "a label of another size": (("--label", "small.tif"), "handled", ""),
    "a label of floats": (("--label", "floats.tif"), "named", "float"),
    "mask and polygons at once": ((*_MASK, "--polygons", "near.geojson"), "refused", ""),
    "one name for two classes": ((*_MASK, "--classes", "only"), "named", "class"),
    "every class ignored": ((*_MASK, "--ignore", "1"), "handled", ""),
}


def _photo() -> bytes:
    from bad_images import encoded

    return encoded()


def _beside(folder: Path) -> None:
    """Labels and polygons that the cases name."""
    import json

    def polygon(east: float) -> str:
        ring = [[east, NORTH - 500], [east + 300, NORTH - 500], [east + 300, NORTH - 100], [east, NORTH - 500]]
        return _features({"type": "Polygon", "coordinates": [ring]})

    def _features(shape: dict[str, Any]) -> str:
        crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32633"}}
        feature = {"type": "Feature", "properties": {"class": 1}, "geometry": shape}
        return json.dumps({"type": "FeatureCollection", "crs": crs, "features": [feature]})

    (folder / "text.geojson").write_text("no json")
    (folder / "empty.geojson").write_text("")
    (folder / "far.geojson").write_text(polygon(EAST + 1e6))
    (folder / "near.geojson").write_text(polygon(EAST + 100))
    (folder / "points.geojson").write_text(_features({"type": "Point", "coordinates": [EAST + 50, NORTH - 50]}))
    pipe(folder / "pipe.geojson")
    (folder / "text.tif").write_text("no raster")
    write_band(folder / "small.tif", side=20, dtype="uint8")
    write_band(folder / "floats.tif", dtype="float32")


def tiled(spoil: Spoil, words: tuple[str, ...]) -> Make:
    def make(stage: Stage, folder: Path) -> list[str]:
        spoil(scene(folder / "scenes"))
        _beside(folder)
        return ["tile", "scenes", "--tile-size", "32", "--workers", "1", *words, "--out", "out"]

    return make


def trained(spoil: Spoil, words: tuple[str, ...]) -> Make:
    def make(stage: Stage, folder: Path) -> list[str]:
        spoil(scene(folder / "scenes"))
        _beside(folder)
        small = [
            "--encoder",
            "test_efficientnet",
            "--weights",
            str(stage.weights),
            "--engine",
            "torch",
            "--epochs",
            "1",
            "--workers",
            "1",
        ]
        return ["segment", "train", "scenes", *small, "--patch-size", "32", "--overlap", "0", *words, "--out", "out"]

    return make


def cases() -> Iterator[BadCase]:
    for name, (spoil, due, says) in SCENES.items():
        yield BadCase("scenes", f"{name}, tile", tiled(spoil, ()), due, says)
        yield BadCase("scenes", f"{name}, segment train", trained(spoil, _MASK), "handled" if due == "fine" else due, says)
    for name, (words, due, says) in ASKED.items():
        yield BadCase("scenes", f"{name}, tile", tiled(lambda folder: None, words), due, says)
        yield BadCase(
            "scenes", f"{name}, segment train", trained(lambda folder: None, words), "handled" if due != "refused" else due, ""
        )
