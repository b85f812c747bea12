"""What a workspace remembers of the encoders it has run: enough to name their features without building a network or an engine.

In: a session. Out: a `KnownEncoder`, while its weights and the engine chosen for it are as they were when it was remembered. It
is only a memory, in `engines/known.json`: without it, or where anything changed, the encoder is loaded and tells itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from unchoke import __version__
from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.fingerprint import digest
from unchoke.features.cut import frozen_part
from unchoke.features.encoders import EncoderSpec
from unchoke.features.engines import Features
from unchoke.features.prepare_engine import OF_PICTURES, FrozenEncoder, load_choices
from unchoke.features.recipe import PictureRecipe
from unchoke.features.weights_identity import identify_weights
from unchoke.pixels.tile_grid import plan_tiles
from unchoke.runs.session import Session

_FILE = "known.json"


@dataclass
class KnownEngine:
    """An engine by what it said of itself: it names what it made, and is never run."""

    name: str
    precision: str
    described: dict[str, Any]
    batch: int = 1
    slots: int = 1

    def encode(self, inputs: NDArray[Any]) -> Features:
        raise RuntimeError(f"{self.name}:{self.precision} is only known here, not built: all its features are there")

    def describe(self) -> dict[str, Any]:
        return dict(self.described)


@dataclass(frozen=True)
class KnownEncoder:
    """How pictures become features, by which engine, and why that one."""

    recipe: PictureRecipe
    engine: KnownEngine
    choice: Choice


def recall_encoder(session: Session) -> KnownEncoder | None:
    """What the settings' encoder was when it last ran here; None where it has not, or where something changed."""
    entry = _load(session).get(_key(session))
    if entry is None:
        return None
    chosen = load_choices(session, OF_PICTURES).get(entry["choice"])
    if chosen is None or [chosen["value"], chosen.get("how", {})] != entry["chosen"]:
        return None
    name, _, precision = chosen["value"].partition(":")
    settings = session.settings
    recipe = PictureRecipe(
        EncoderSpec.from_dict(entry["spec"]),
        name,
        precision,
        settings.views,
        entry["cut"],
        plan_tiles(streams=settings.streams, tiles=settings.tiles),
        shape=tuple(entry["shape"]),
        decode_scale=entry["engine"]["decode_scale"],
    )
    reason = f"chosen when this workspace began: {chosen['reason']}"
    choice = Choice("engine", chosen["value"], reason, chosen["evidence"])
    return KnownEncoder(recipe, KnownEngine(name, precision, entry["engine"]), choice)


def remember_encoder(session: Session, frozen: FrozenEncoder) -> None:
    """Keep what an encoder that has been prepared is."""
    key = frozen_part(frozen.encoder, frozen.cut).choice_key(_wishes(session))
    chosen = load_choices(session, OF_PICTURES)[key]
    entry = {
        "spec": frozen.encoder.spec.to_dict(),
        "cut": frozen.cut.name,
        "shape": list(frozen.cut.shape),
        "engine": frozen.describe(),
        "choice": key,
        "chosen": [chosen["value"], chosen.get("how", {})],
    }
    known = _load(session)
    if known.get(_key(session)) != entry:
        checksums.save_checked_json(session.workspace.engines / _FILE, {**known, _key(session): entry})


def _key(session: Session) -> str:
    settings = session.settings
    network = [settings.encoder, settings.input_px, settings.cut, settings.streams, settings.tiles]
    return digest([__version__, network, _wishes(session), identify_weights(settings.weights, settings.encoder)])


def _wishes(session: Session) -> list[str | None]:
    return [session.settings.engine, session.settings.precision, session.settings.device]


def _load(session: Session) -> dict[str, Any]:
    return checksums.recall_json(session.workspace.engines / _FILE, session.warn)
