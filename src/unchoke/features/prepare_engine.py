"""Which encoder, where it is cut and which engine runs the frozen part: compared with plain torch on the user's own pictures.

In: a session and the pictures. Out: an encoder, its two parts, and an engine whose features may be used. The choice is written
down in the workspace and stands from then on, so that a resumed run computes the very same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core import atomic
from unchoke.core.errors import UsageError
from unchoke.core.fingerprint import digest, hash_int
from unchoke.features.agree import ASKED_FOR_INT8, USUAL, Candidate, choose_engine
from unchoke.features.cut import NONE, Cut, cut_network, frozen_part
from unchoke.features.encoders import Encoder, load_encoder
from unchoke.features.engine_choice import load_choices, rebuild, refuse_unmet_wish
from unchoke.features.engine_openvino import OPENVINO_BATCH, OpenVinoEngine
from unchoke.features.engines import Engine, TorchEngine
from unchoke.features.extractor import load_views
from unchoke.features.recipe import TWICE, Recipe
from unchoke.machine.backend import keep_freed_memory, torch_device
from unchoke.photos.pixels.image import DecodeError, Pixels
from unchoke.photos.pixels.tile_grid import TilePlan, plan_tiles
from unchoke.runs.session import Session

_COMPARED = 32
_CALIBRATED = 128
_PRECISIONS = {"torch": ("f32", "bf16", "f16"), "openvino": ("f32", "bf16", "int8")}


@dataclass(frozen=True, slots=True)
class Picture:
    """What extraction needs to know of a sample."""

    sample_id: str
    path: str
    content: str


@dataclass(frozen=True)
class HowRun:
    """How an engine is run: pictures at once, batches side by side, and how small files are decoded. None: as the policy says."""

    encode_batch: int | None = None
    engine_streams: int | None = None
    decode_scale: str = TWICE

    def given(self) -> dict[str, Any]:
        """What differs from the usual."""
        return {name: value for name, value in asdict(self).items() if value != getattr(HowRun(), name)}


@dataclass(frozen=True)
class Frozen:
    """The whole encoder, where it is cut, how pictures are shown to it, and the engine that runs the part before the cut."""

    encoder: Encoder
    cut: Cut
    tiles: TilePlan
    engine: Engine
    how: HowRun = field(default_factory=HowRun)

    def recipe(self, num_augmented: int) -> Recipe:
        """How a picture becomes what is cached."""
        engine, scale = self.engine, self.how.decode_scale
        named = (engine.name, engine.precision, num_augmented, self.cut.name)
        return Recipe(self.encoder.spec, *named, self.tiles, shape=self.cut.shape, decode_scale=scale)

    def describe(self) -> dict[str, Any]:
        """The engine and how files are decoded for it, for the record and for prediction."""
        return {**self.engine.describe(), "decode_scale": self.how.decode_scale}


def open_encoder(session: Session) -> Encoder:
    """The encoder the settings name, with its weights, for inputs of the size they ask for."""
    settings = session.settings
    weights = Path(settings.weights) if settings.weights else None
    return load_encoder(settings.encoder, weights=weights, input_px=settings.input_px)


def prepare_engine(session: Session, pictures: Sequence[Picture]) -> Frozen:
    """The frozen part and its engine; an earlier choice in this workspace stands, so that resuming is exact."""
    settings = session.settings
    _refuse_nothing_frozen(settings.cut)
    _refuse_unknown_pair(settings.engine, settings.precision)
    tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
    session.chose(keep_freed_memory())
    encoder = open_encoder(session)
    cut = cut_network(encoder, settings.cut)
    part = frozen_part(encoder, cut)
    kept = session.workspace.engines / "choice.json"
    earlier, key = load_choices(kept), choice_key(session, part)
    how = HowRun(**earlier[key].get("how", {})) if key in earlier else _tuned_how(session)
    if key in earlier:
        engine = rebuild(session, earlier[key], lambda label: build_engine(session, part, label, pictures, tiles, how))
        if engine is not None:
            return Frozen(encoder, cut, tiles, engine, how)
    reference = TorchEngine(part, device=torch_device(session.policy))
    candidates = engine_candidates(session, part, pictures, tiles, how)
    shown = "pictures" if tiles.is_whole else "pictures' tiles"
    engine, choice = choose_engine(reference, candidates, _sample(part, pictures, tiles, _COMPARED), shown=shown)
    refuse_unmet_wish(session, choice)
    atomic.write_json(kept, {**earlier, key: {**choice.to_dict(), "how": how.given()}})
    session.chose(choice)
    return Frozen(encoder, cut, tiles, engine, how)


def _tuned_how(session: Session) -> HowRun:
    """As `unchoke tune` found best, for the engine it found that with; as usual where another one is asked for by name."""
    settings, names = session.settings, ["encode_batch", "decode_scale"]
    if settings.engine or settings.precision:
        return HowRun()
    names += ["engine_streams"] if settings.workers is None else []
    choices = [choice for name in names if (choice := session.tuned.choice(name)) is not None]
    for choice in choices:
        session.chose(choice)
    return HowRun(**{choice.name: choice.value for choice in choices})


def _refuse_nothing_frozen(cut: str) -> None:
    if cut == NONE:
        raise UsageError(
            "--cut none leaves nothing to extract",
            why="all of the network trains, from pixels: no part of it is run once and kept",
            try_="unchoke train DATA --cut none, or unchoke extract DATA --cut -4",
        )


def choice_key(session: Session, part: Encoder) -> str:
    """What the choice of an engine depends on."""
    settings, spec = session.settings, part.spec
    asked_for = [settings.engine, settings.precision, settings.device]
    cut = [] if part.cut == "end" else [part.cut]
    return digest([spec.weights_sha256, spec.preprocess.to_dict(), *asked_for, *cut])


def _refuse_unknown_pair(engine: str | None, precision: str | None) -> None:
    if engine and precision and precision not in _PRECISIONS[engine]:
        raise UsageError(
            f"--engine {engine} does not run --precision {precision}",
            why=f"it runs {', '.join(_PRECISIONS[engine])}",
            try_=f"--precision {precision} alone picks the engine that does",
        )


def engine_candidates(
    session: Session, part: Encoder, pictures: Sequence[Picture], tiles: TilePlan, how: HowRun
) -> list[Candidate]:
    """Engines that may be used here, best first; each has to agree with plain torch before it is."""

    def candidate(label: str) -> Candidate:
        tolerance = ASKED_FOR_INT8 if label.endswith(":int8") else USUAL
        return Candidate(label, lambda: build_engine(session, part, label, pictures, tiles, how), tolerance)

    return [candidate(label) for label in wanted_labels(session)]


def wanted_labels(session: Session) -> list[str]:
    """The policy's candidates, what was tuned first among them, narrowed to the engine and precision asked for."""
    wanted = session.settings
    tuned = session.tuned.choice("engine")
    labels = list(dict.fromkeys([*([str(tuned.value)] if tuned else []), *session.policy.engine]))
    if wanted.precision:
        engines = dict.fromkeys([*(label.partition(":")[0] for label in labels), *_PRECISIONS])
        labels = [f"{engine}:{wanted.precision}" for engine in engines if wanted.precision in _PRECISIONS[engine]]
    if wanted.engine:
        of_engine = [label for label in labels if label.startswith(f"{wanted.engine}:")]
        labels = of_engine or [f"{wanted.engine}:{wanted.precision or 'f32'}"]
    return labels


def build_engine(
    session: Session, part: Encoder, label: str, pictures: Sequence[Picture], tiles: TilePlan, how: HowRun
) -> Engine:
    """The engine of that label (``openvino:bf16``), run as `how` says."""
    name, _, precision = label.partition(":")
    if name == "openvino":
        return OpenVinoEngine(
            part,
            precision=precision,
            streams=how.engine_streams or max(1, session.policy.workers),
            batch=how.encode_batch or OPENVINO_BATCH,
            keep_in=session.workspace.engines,
            calibration=_sample(part, pictures, tiles, _CALIBRATED) if precision == "int8" else None,
        )
    return TorchEngine(
        part,
        device=torch_device(session.policy),
        precision=precision,
        batch=how.encode_batch or session.policy.encode_batch,
        channels_last=session.policy.memory_format == "channels_last",
    )


def _sample(part: Encoder, pictures: Sequence[Picture], tiles: TilePlan, num: int) -> Pixels:
    """Up to `num` network inputs from the user's pictures, which are spread by hash; extraction names those that fail."""
    size_px = part.spec.preprocess.size_px
    recipe = Recipe(part.spec, "torch", "f32", tiles=tiles)
    found: list[Pixels] = []
    for picture in sorted(pictures, key=lambda picture: hash_int("sample", picture.sample_id)):
        if len(found) >= num:
            break
        try:
            found.extend(load_views(picture.path, picture.sample_id, "", recipe))
        except DecodeError:
            continue
    return np.stack(found[:num]) if found else np.empty((0, size_px, size_px, 3), np.uint8)
