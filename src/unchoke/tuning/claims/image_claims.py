"""Claims about reading pictures: another decoder, decoded pictures kept in memory, paths resolved once.

The first two are about the time of a training epoch, so an epoch is timed, with the network's part in it; the third was
reported of training too, and is timed on loading alone, where it can gain the most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from unchoke.core import listing
from unchoke.core.clock import StageTimers
from unchoke.core.units import format_bytes
from unchoke.tuning.claims.claim import ClaimMeasurement, percent, possible_gain, spell_s
from unchoke.tuning.claims.claim_bench import Bench
from unchoke.tuning.claims.plain_training import Epoch, Pixels, PlainTrainer, Read, plain_reader

_FEW_LEVELS = 3
"""Of 255: decoders may round their cosine transforms and stretch colours differently."""
_LOOKUPS = 200


def measure_turbo_jpeg(bench: Bench) -> ClaimMeasurement:
    """An epoch with the usual decoder against one with libjpeg-turbo."""
    from unchoke.pixels.image import read_image

    name, read = plain_reader()
    trainer = PlainTrainer(bench.device)
    plain, turbo = (Epoch(bench, trainer, bench.photos, how) for how in (read, read_image))
    compared = bench.compare(plain.run, turbo.run)
    apart = levels_apart(bench.photos, read, read_image)
    share, faster = plain.share("decode"), plain.timers.seconds["decode"] / turbo.timers.seconds["decode"]
    scaled = _decode_seconds(bench, None) / _decode_seconds(bench, bench.sizes.input_px)
    why = (
        f"decoding is {percent(share)} of an epoch here, and libjpeg-turbo decodes {faster:.2f}× as fast as {name}, so that "
        f"{possible_gain(share, faster):.2f}× can come of it; decoded no larger than the network needs it is {scaled:.2f}× again"
    )
    return ClaimMeasurement.of(
        compared,
        equal=apart <= _FEW_LEVELS,
        equal_figure=f"pixels at most {apart} of 255 apart",
        why=why,
        plain_decoder=name,
        decode_share=share,
        decode_ratio=faster,
        scaled_decode_ratio=scaled,
    )


def measure_image_cache(bench: Bench) -> ClaimMeasurement:
    """An epoch that decodes every picture again against one that takes it from memory."""
    from unchoke.pixels.pixel_cache import PictureFile, PixelCache
    from unchoke.pixels.slots import RamSlots

    _, read = plain_reader()
    trainer, paths = PlainTrainer(bench.device), bench.photos
    width, height = bench.sizes.photo_px
    slots = RamSlots(len(paths), height, width)
    places = {path: place for place, path in enumerate(paths)}
    sources = [PictureFile(path, 0, 0) for path in paths]
    with PixelCache(slots, sources, height=height, width=width, read=lambda place: read(paths[place])) as cache:
        plain = Epoch(bench, trainer, paths, read)
        cached = Epoch(bench, trainer, paths, lambda path: cache.row(places[path]))
        for place in range(len(paths)):
            cache.row(place)
        compared = bench.compare(plain.run, cached.run)
        apart = levels_apart(paths, read, lambda path: cache.row(places[path]))
    share = plain.share("decode")
    faster = plain.timers.seconds["decode"] / cached.timers.seconds["decode"]
    why = (
        f"reading and decoding is {percent(share)} of an epoch here, and a picture comes {faster:.1f}× as fast from memory, so "
        f"that {possible_gain(share, faster):.2f}× can come of it, for {format_bytes(width * height * 3)} of memory a picture"
    )
    return ClaimMeasurement.of(
        compared,
        equal=apart == 0,
        equal_figure=f"pixels {apart} of 255 apart",
        why=why,
        decode_share=share,
        decode_ratio=faster,
        picture_bytes=width * height * 3,
    )


def levels_apart(paths: Sequence[str], plain: Read, other: Read) -> int:
    """The largest difference of any pixel between two ways of reading."""
    return max(int(np.abs(plain(path).astype(np.int16) - other(path)).max()) for path in paths)


def _decode_seconds(bench: Bench, cover_px: int | None) -> float:
    from unchoke.pixels.image import read_image

    return bench.seconds(lambda: [read_image(path, cover_px=cover_px) for path in bench.photos])


def measure_path_cache(bench: Bench) -> ClaimMeasurement:
    """A loading pass that asks the disk where each picture is against one that knows."""
    folders = sorted({str(Path(path).parent) for path in bench.small_photos})
    names = [Path(path).name for path in bench.small_photos]
    table = {name: str(Path(folder, name)) for folder in folders for name in listing.names(Path(folder), suffix=".jpg")}
    asking, knowing = _LoadingPass(bench, names, lambda name: ask(folders, name)), _LoadingPass(bench, names, table.__getitem__)
    compared = bench.compare(asking.run, knowing.run)
    equal = all(ask(folders, name) == table[name] for name in names)
    ask_s, look_up_s, rest_s = _find_seconds(bench, asking), _find_seconds(bench, knowing), asking.load_s
    share = ask_s / (ask_s + rest_s)
    least = 10.0
    needed_s = (least - 1) * rest_s
    why = (
        f"asking for a path takes {spell_s(ask_s)} here and looking it up {spell_s(look_up_s)} ({ask_s / look_up_s:.0f}×), but "
        f"reading and decoding the picture takes {spell_s(rest_s)}: asking is {percent(share, digits=1)} of loading; for "
        f"{least:.0f}× it would have to take {spell_s(needed_s)} a picture, as on a slow network disk"
    )
    return ClaimMeasurement.of(
        compared,
        equal=equal,
        equal_figure="the same files" if equal else "OTHER files",
        why=why,
        ask_s=ask_s,
        look_up_s=look_up_s,
        ask_share=share,
        rest_s=rest_s,
        needed_s=needed_s,
    )


def ask(folders: Sequence[str], name: str) -> str:
    """Try one folder after the other, as many scripts do for every sample of every epoch."""
    for folder in folders:
        path = os.path.join(folder, name)  # noqa: PTH118 (the very calls that the claim is about)
        if os.path.exists(path):  # noqa: PTH110
            return path
    raise FileNotFoundError(name)


class _LoadingPass:
    """A pass over the pictures: find the file, read, decode, resize."""

    def __init__(self, bench: Bench, names: Sequence[str], find: Callable[[str], str]) -> None:
        self.names, self.find = names, find
        self._read = plain_reader()[1]
        self._input_px = bench.sizes.input_px
        self._timers = StageTimers()
        self._loaded = 0

    def run(self) -> None:
        for name in self.names:
            path = self.find(name)
            with self._timers.stage("load"):
                self._load(path)
        self._loaded += len(self.names)

    def _load(self, path: str) -> Pixels:
        from unchoke.pixels.resize import resize

        return resize(self._read(path), self._input_px, self._input_px, interpolation="bilinear")

    @property
    def load_s(self) -> float:
        """Reading, decoding and resizing one picture."""
        return self._timers.seconds["load"] / self._loaded


def _find_seconds(bench: Bench, loading: _LoadingPass) -> float:
    """Finding one file, from many in a row."""
    rounds = range(max(1, _LOOKUPS // len(loading.names)))
    spent_s = bench.seconds(lambda: [loading.find(name) for _ in rounds for name in loading.names])
    return spent_s / (len(rounds) * len(loading.names))
