"""Which engine runs the pyramid: compared with plain torch on the user's own patches, and kept in the workspace.

In: a session, a pyramid and some patches. Out: an engine whose rows may be used. A choice made before stands, so that a resumed
run computes the very same numbers.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from numpy.typing import NDArray
from torch import nn

from unchoke.core import atomic
from unchoke.core.errors import UsageError
from unchoke.core.fingerprint import digest
from unchoke.core.settings import Settings
from unchoke.features.agree import Candidate, choose_engine
from unchoke.features.engine_choice import load_choices, rebuild, refuse_unmet_wish
from unchoke.features.pyramid import PyramidEngine, PyramidSpec, TorchPyramidEngine
from unchoke.features.pyramid_openvino import OpenVinoPyramidEngine
from unchoke.machine.backend import keep_freed_memory, torch_device
from unchoke.masks.dihedral import NUM_TURNS
from unchoke.runs.session import Session

COMPARED = 32
_PRECISIONS = {"torch": ("f32", "bf16", "f16"), "openvino": ("f32", "bf16")}
_USUAL_PX = 224
_OPENVINO_BATCH = 8


def choose_pyramid_engine(session: Session, module: nn.Module, spec: PyramidSpec, sample: NDArray[Any]) -> PyramidEngine:
    """The first of the machine's engines that agrees with float32 torch on `sample`; one chosen before stands."""
    refuse_impossible(session.settings)
    session.chose(keep_freed_memory())
    kept = session.workspace.engines / "pyramid_choice.json"
    earlier, key = load_choices(kept), _choice_key(session, spec)
    if key in earlier:
        engine = rebuild(session, earlier[key], lambda label: _build(session, module, spec, label))
        if engine is not None:
            return engine

    def candidate(label: str) -> Candidate:
        return Candidate(label, lambda: _build(session, module, spec, label))

    reference = _build(session, module, spec, "torch:f32")
    candidates = [candidate(label) for label in takewhile(lambda label: label != "torch:f32", _wanted_labels(session))]
    engine, choice = choose_engine(
        reference, candidates, sample, shown="patches", even_slower=bool(session.settings.engine or session.settings.precision)
    )
    refuse_unmet_wish(session, choice)
    atomic.write_json(kept, {**earlier, key: choice.to_dict()})
    session.chose(choice)
    return engine


def _choice_key(session: Session, spec: PyramidSpec) -> str:
    settings = session.settings
    return digest([spec.to_dict(), settings.engine, settings.precision, settings.device])


def refuse_impossible(settings: Settings) -> None:
    """Refuse more views than a patch has, and numbers that no engine of pyramids computes, before anything is read."""
    if settings.views >= NUM_TURNS:
        raise UsageError(
            f"--views {settings.views} is more than a patch has",
            why=f"a patch can be turned and mirrored in {NUM_TURNS} ways, itself among them",
            try_=f"--views {NUM_TURNS - 1}",
        )
    known = [name for engine in _engines(settings) for name in _PRECISIONS[engine]]
    if settings.precision and settings.precision not in known:
        raise UsageError(
            f"pyramids are not computed in {settings.precision}" + (f" by {settings.engine}" if settings.engine else ""),
            why=f"there are {', '.join(dict.fromkeys(known))}",
            try_="--precision bf16, or leave it out",
        )


def _engines(settings: Settings) -> list[str]:
    return [settings.engine] if settings.engine else list(_PRECISIONS)


def _wanted_labels(session: Session) -> list[str]:
    """The policy's candidates, narrowed to the engine and precision asked for."""
    settings = session.settings
    if settings.precision:
        preferred = dict.fromkeys([*(label.partition(":")[0] for label in session.policy.engine), *_PRECISIONS])
        able = [name for name in preferred if settings.precision in _PRECISIONS[name]]
        return [f"{name}:{settings.precision}" for name in able if name in _engines(settings)]
    labels = [label for label in session.policy.engine if label.partition(":")[2] in _PRECISIONS[label.partition(":")[0]]]
    if settings.engine:
        return [label for label in labels if label.startswith(f"{settings.engine}:")] or [f"{settings.engine}:f32"]
    return labels


def _build(session: Session, module: nn.Module, spec: PyramidSpec, label: str) -> PyramidEngine:
    name, _, precision = label.partition(":")
    if name == "openvino":
        return OpenVinoPyramidEngine(
            module,
            spec,
            precision=precision,
            streams=max(1, session.policy.workers),
            batch=_batch(_OPENVINO_BATCH, spec),
            keep_in=session.workspace.engines,
        )
    return TorchPyramidEngine(
        module,
        spec,
        device=torch_device(session.policy),
        precision=precision,
        batch=_batch(session.policy.encode_batch, spec),
        channels_last=session.policy.memory_format == "channels_last",
    )


def _batch(usual: int, spec: PyramidSpec) -> int:
    """As many patches as have about the pixels of the usual batch of pictures; never more of them than that."""
    return max(1, min(usual, usual * _USUAL_PX**2 // spec.patch_px**2))
