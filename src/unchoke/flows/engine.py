"""Which encoder and which engine: built, compared with plain torch on the user's own pictures, and the choice kept.

In: a session and the pictures. Out: an encoder and an engine whose features may be used. The choice is written down in the
workspace and stands from then on, so that a resumed run computes the very same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unchoke import atomic
from unchoke.choices import Choice
from unchoke.decode.image import DecodeError, Pixels
from unchoke.device.backend import keep_freed_memory, torch_device
from unchoke.errors import MachineError, UsageError
from unchoke.features.agree import ASKED_FOR_INT8, USUAL, Candidate, choose_engine
from unchoke.features.encoders import Encoder, load_encoder
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.engines import Engine, TorchEngine
from unchoke.features.extract import load_views
from unchoke.features.recipe import Recipe
from unchoke.fingerprint import digest, hash_int
from unchoke.flows.session import Session

_COMPARED = 32
_CALIBRATED = 128
_PRECISIONS = {"torch": ("f32", "bf16", "f16"), "openvino": ("f32", "bf16", "int8")}


@dataclass(frozen=True, slots=True)
class Picture:
    """What extraction needs to know of a sample."""

    sample_id: str
    path: str
    content: str


def prepare_engine(session: Session, pictures: Sequence[Picture]) -> tuple[Encoder, Engine]:
    """The encoder, and the engine that will run it; an earlier choice in this workspace stands, so that resuming is exact."""
    settings = session.settings
    if settings.cut != "end":
        raise UsageError(
            f"--cut {settings.cut} is not available", why="this version trains on the whole frozen network", try_="--cut end"
        )
    _refuse_unknown_pair(settings.engine, settings.precision)
    session.chose(keep_freed_memory())
    encoder = load_encoder(settings.encoder, weights=Path(settings.weights) if settings.weights else None)
    kept = session.workspace.engines / "choice.json"
    key = digest(
        [encoder.spec.weights_sha256, encoder.spec.preprocess.to_dict(), settings.engine, settings.precision, settings.device]
    )
    earlier = _load_choices(kept)
    if key in earlier:
        engine = _rebuild(session, encoder, earlier[key], pictures)
        if engine is not None:
            return encoder, engine
    reference = TorchEngine(encoder, device=torch_device(session.policy))
    candidates = _candidates(session, encoder, pictures)
    engine, choice = choose_engine(reference, candidates, _sample(encoder, pictures, _COMPARED))
    _refuse_unmet_wish(session, choice)
    atomic.write_json(kept, {**earlier, key: choice.to_dict()})
    session.chose(choice)
    return encoder, engine


def _refuse_unknown_pair(engine: str | None, precision: str | None) -> None:
    if engine and precision and precision not in _PRECISIONS[engine]:
        raise UsageError(
            f"--engine {engine} does not run --precision {precision}",
            why=f"it runs {', '.join(_PRECISIONS[engine])}",
            try_=f"--precision {precision} alone picks the engine that does",
        )


def _load_choices(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def _rebuild(session: Session, encoder: Encoder, earlier: dict[str, Any], pictures: Sequence[Picture]) -> Engine | None:
    """The engine chosen before, or None (with a word) where this machine cannot run it."""
    try:
        engine = _build(session, encoder, earlier["value"], pictures)
    except MachineError as error:
        session.warn(f"the engine chosen earlier, {earlier['value']}, is not available here ({error.what}); choosing again")
        return None
    session.chose(
        Choice("engine", earlier["value"], f"chosen when this workspace began: {earlier['reason']}", earlier["evidence"])
    )
    return engine


def _refuse_unmet_wish(session: Session, choice: Choice) -> None:
    """An engine or precision asked for by name is used or refused, never silently replaced."""
    name, _, precision = str(choice.value).partition(":")
    wanted = session.settings
    if wanted.engine not in (None, name) or wanted.precision not in (None, precision):
        asked = " ".join(
            f"--{key} {value}" for key, value in (("engine", wanted.engine), ("precision", wanted.precision)) if value
        )
        raise MachineError(f"{asked} cannot be used here", why=choice.reason, try_="leave the option out and let it be chosen")


def _candidates(session: Session, encoder: Encoder, pictures: Sequence[Picture]) -> list[Candidate]:
    def candidate(label: str) -> Candidate:
        tolerance = ASKED_FOR_INT8 if label.endswith(":int8") else USUAL
        return Candidate(label, lambda: _build(session, encoder, label, pictures), tolerance)

    return [candidate(label) for label in _wanted_labels(session)]


def _wanted_labels(session: Session) -> list[str]:
    """The policy's candidates, narrowed to the engine and precision asked for."""
    wanted = session.settings
    labels = list(session.policy.engine)
    if wanted.precision:
        engines = dict.fromkeys([*(label.partition(":")[0] for label in labels), *_PRECISIONS])
        labels = [f"{engine}:{wanted.precision}" for engine in engines if wanted.precision in _PRECISIONS[engine]]
    if wanted.engine:
        of_engine = [label for label in labels if label.startswith(f"{wanted.engine}:")]
        labels = of_engine or [f"{wanted.engine}:{wanted.precision or 'f32'}"]
    return labels


def _build(session: Session, encoder: Encoder, label: str, pictures: Sequence[Picture]) -> Engine:
    name, _, precision = label.partition(":")
    if name == "openvino":
        return OpenVinoEngine(
            encoder,
            precision=precision,
            streams=max(1, session.policy.workers),
            keep_in=session.workspace.engines,
            calibration=_sample(encoder, pictures, _CALIBRATED) if precision == "int8" else None,
        )
    return TorchEngine(
        encoder,
        device=torch_device(session.policy),
        precision=precision,
        batch=session.policy.encode_batch,
        channels_last=session.policy.memory_format == "channels_last",
    )


def _sample(encoder: Encoder, pictures: Sequence[Picture], num: int) -> Pixels:
    """Up to `num` of the user's pictures, spread by hash, as the network would see them; extraction names those that fail."""
    size_px = encoder.spec.preprocess.size_px
    recipe = Recipe(encoder.spec, "torch", "f32")
    found: list[Pixels] = []
    for picture in sorted(pictures, key=lambda picture: hash_int("sample", picture.sample_id)):
        if len(found) == num:
            break
        try:
            found.append(load_views(picture.path, picture.sample_id, "", recipe)[0])
        except DecodeError:
            continue
    return np.stack(found) if found else np.empty((0, size_px, size_px, 3), np.uint8)
