"""The frozen part as work that can be done in several ways: files to features as extraction does it, for `unchoke tune`.

In: the part of a network before the cut, and a sample of the user's pictures. Out: for any `FrozenSetup`, whether its features
agree with plain float32 torch on pictures decoded in full (by the rule of `features/agree.py`), and how many seconds a picture
takes. Shards go to a folder of the caller's; the workspace's own features are not touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.errors import MachineError
from unchoke.core.units import format_count
from unchoke.data.inspect_samples import read_size
from unchoke.features.agree import ASKED_FOR_INT8, USUAL, compare
from unchoke.features.cut import cut_network, frozen_part
from unchoke.features.encoders import Encoder
from unchoke.features.engine_openvino import OPENVINO_BATCH
from unchoke.features.engines import Features, FrozenEngine, TorchEngine
from unchoke.features.extractor import Extractor, PictureReader, load_views
from unchoke.features.feature_store import to_half
from unchoke.features.prepare_engine import EngineTuning, Picture, build_engine, picture_sample
from unchoke.features.recipe import FULL, TWICE, PictureRecipe
from unchoke.jobs.job_plan import Job
from unchoke.machine.backend import empty_cache, torch_device
from unchoke.machine.policy import Policy
from unchoke.pixels.image import Pixels, shrink_factor
from unchoke.pixels.tile_grid import cover_px, plan_tiles
from unchoke.runs.session import Session
from unchoke.tuning.compare import Likeness
from unchoke.tuning.trials import quickest
from unchoke.tuning.tune_training import HeldActivations

_COMPARED = 32
_BLOCK_S = 0.7
_MOST_PICTURES = 256
_JOBS_IN_FLIGHT = 2


@dataclass(frozen=True)
class FrozenSetup:
    """One way to run the frozen part. The names are those of the switches."""

    engine: str
    encode_batch: int
    engine_streams: int
    decode_threads: int = 0
    decode_scale: str = TWICE

    @classmethod
    def usual(cls, policy: Policy, label: str) -> FrozenSetup:
        """How extraction runs that engine where nothing is tuned."""
        if label.startswith("openvino:"):
            return cls(label, OPENVINO_BATCH, max(1, policy.workers))
        return cls(label, policy.encode_batch, _JOBS_IN_FLIGHT, policy.decode_threads)

    @property
    def key(self) -> tuple[str, int, int]:
        """What an engine is built from."""
        return self.engine, self.encode_batch, self.engine_streams


class FrozenWork:
    """Extraction of a few pictures by the part of `encoder` before the cut that the settings say."""

    def __init__(self, session: Session, encoder: Encoder, pictures: Sequence[Picture], folder: Path) -> None:
        settings = session.settings
        cut = cut_network(encoder, settings.cut)
        tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
        self._session, self.part = session, frozen_part(encoder, cut)
        self._recipe = PictureRecipe(encoder.spec, "", "", settings.views, cut.name, tiles, shape=cut.shape)
        self.pictures, self._folder = list(pictures), folder
        self._paths = {picture.sample_id: picture.path for picture in pictures}
        self._engines: dict[tuple[str, int, int], FrozenEngine] = {}
        self._warm: set[FrozenSetup] = set()
        self._reference: Features | None = None
        self.num, self.block_s = self._pictures_for(_COMPARED), 0.0

    @property
    def piece(self) -> str:
        """What is timed at once, in words."""
        return f"{format_count(self.num, 'image')}, from files to features"

    @property
    def num_inputs(self) -> int:
        return self.num * self._recipe.num_inputs

    def _pictures_for(self, num_inputs: int) -> int:
        """How many pictures give so many inputs of the network, tiles and views counted."""
        return -(-num_inputs // self._recipe.num_inputs)

    def first_that_agrees(self, labels: Sequence[str]) -> FrozenSetup:
        """The engine that extraction would choose of those, in its usual way."""
        for label in labels:
            with suppress(MachineError):
                if self.alike(setup := FrozenSetup.usual(self._session.policy, label)).equal:
                    return setup
        return FrozenSetup.usual(self._session.policy, "torch:f32")

    def changed(self, setup: FrozenSetup, name: str, value: Any) -> FrozenSetup:
        """Another engine comes with what is usual for it."""
        if name == "engine":
            return replace(FrozenSetup.usual(self._session.policy, value), decode_scale=setup.decode_scale)
        return replace(setup, **{name: value})

    def held(self) -> HeldActivations:
        """The features of the compared pictures, as the part that trains is shown them."""
        found = to_half(self.reference(), of=self._recipe.network)
        num_tiles = self._recipe.tiles.num_tiles
        return HeldActivations(found.reshape(len(found) // num_tiles, num_tiles, *found.shape[1:]))

    def calibrate(self, setup: FrozenSetup, *, budget_s: float) -> None:
        """Find out how many pictures a timed piece has."""
        picture_s = quickest(self.timed(setup), budget_s=budget_s)
        least = self._pictures_for(setup.engine_streams * setup.encode_batch)
        wanted = round(_BLOCK_S / picture_s / least) * least
        self.num = min(_MOST_PICTURES, max(least, wanted))
        self.block_s = self.num * picture_s

    def reference(self) -> Features:
        """What is right: the features of some pictures, decoded in full, from plain torch in float32."""
        if self._reference is None:
            engine = TorchEngine(self.part, device=torch_device(self._session.policy))
            self._reference = engine.encode(self._pixels(FULL))
        return self._reference

    def alike(self, setup: FrozenSetup) -> Likeness:
        with self._as_extraction(setup):
            found = self._engine(setup).encode(self._pixels(setup.decode_scale))
        agreement = compare(self.reference(), found)
        tolerance = ASKED_FOR_INT8 if setup.engine.endswith(":int8") else USUAL
        figures = {"mean_cosine": agreement.mean_cosine, "worst_centred": agreement.worst_centred}
        return Likeness(agreement.within(tolerance), agreement.in_words(tolerance), figures)

    def timed(self, setup: FrozenSetup) -> Callable[[], float]:
        engine = self._engine(setup)
        recipe = replace(self._recipe, decode_scale=setup.decode_scale)
        extractor = Extractor(engine, recipe, PictureReader(recipe, self._paths), self._folder, setup.decode_threads)

        def run() -> float:
            ids = [self.pictures[number % len(self.pictures)].sample_id for number in range(self.num)]
            shares = [ids[number :: setup.engine_streams] for number in range(min(setup.engine_streams, len(ids)))]
            jobs = [
                Job.of(f"tune {number}", 0, share, [""] * len(share), output=f"tune-{number}.npz", fingerprint="")
                for number, share in enumerate(shares)
            ]
            with self._as_extraction(setup), ThreadPoolExecutor(setup.engine_streams) as threads:
                started_s = time.perf_counter()
                num = sum(result.num_items for result in threads.map(extractor, jobs))
                spent_s = time.perf_counter() - started_s
            self.block_s += (spent_s - self.block_s) / 4  # what a piece takes lately
            return spent_s / num

        if setup not in self._warm:
            run()
            self._warm.add(setup)
        return run

    def let_go(self, *but: FrozenSetup) -> None:
        wanted = {setup.key for setup in but}
        self._warm &= set(but)
        self._engines = {key: engine for key, engine in self._engines.items() if key in wanted}
        empty_cache(torch_device(self._session.policy))

    def shrinks(self, decode_scale: str) -> NDArray[np.int64]:
        """By how much each picture of the sample is decoded smaller at this scale."""
        cover = replace(self._recipe, decode_scale=decode_scale).cover
        least = None if cover is None else cover_px(self._recipe.tiles, self._recipe.encoder.preprocess, times=cover)
        return np.array([shrink_factor(min(read_size(picture.path)), least) for picture in self.pictures])

    def _engine(self, setup: FrozenSetup) -> FrozenEngine:
        if setup.key not in self._engines:
            tuning = EngineTuning(setup.encode_batch, setup.engine_streams, setup.decode_scale)
            sample = picture_sample(self.part, self.pictures, self._recipe.tiles)
            self._engines[setup.key] = build_engine(self._session, self.part, setup.engine, sample=sample, tuning=tuning)
        return self._engines[setup.key]

    def _pixels(self, decode_scale: str) -> Pixels:
        recipe = replace(self._recipe, decode_scale=decode_scale, num_augmented=0)
        chosen = self.pictures[: self._pictures_for(_COMPARED)]
        return np.stack([view for one in chosen for view in load_views(one.path, one.sample_id, "", recipe)])

    @contextmanager
    def _as_extraction(self, setup: FrozenSetup) -> Iterator[None]:
        """torch's threads as extraction has them: one where streams use the cores."""
        before = torch.get_num_threads()
        if setup.engine.startswith("openvino:"):
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
