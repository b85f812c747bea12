"""How many patches are predicted at once: measured under a limit, or the usual number.

In: a session and a predictor. Out: a batch size, with its reason. Sizes are tried in processes of their own. What was chosen is
kept beside the unfinished masks and stands until they are finished, so that a mask that goes on is made of the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.backend import held_memory_bytes, is_cpu, torch_device
from unchoke.machine.memory.memory_limit import MemoryLimit, given_limit, limit_elsewhere
from unchoke.machine.memory.memory_plan import MemoryRoom
from unchoke.machine.memory.memory_watch import own_bytes
from unchoke.machine.memory.probe import ProbeResult
from unchoke.machine.memory.search import find_largest
from unchoke.masks.predictor import TARGET, BatchTrial, PredictorSpec
from unchoke.runs.session import Session
from unchoke.scenes.handles import CACHE_BYTES
from unchoke.training.network.prober import Prober

FILE = "batch.json"
USUAL_BATCH = 8
_LARGEST_BATCH = 64
_FIRST = (1, 4)
_USUAL_PROBES = 3


def choose_batch(session: Session, spec: PredictorSpec, *, held_bytes: int, keep_in: Path) -> int:
    """The batch this work began with, or one chosen now. `held_bytes` is what stitching takes beside the network."""
    device, asked = torch_device(spec.device), session.settings.memory_bytes
    if asked is None and is_cpu(device):
        reason = "on a processor more at once gain little; with --memory, what fits is measured"
        session.chose(Choice("batch", USUAL_BATCH, reason))
        return USUAL_BATCH
    key = digest([spec.identity(), asked, held_bytes])
    choice = _kept(keep_in / FILE, key, session.warn) or _measured(session, spec, held_bytes=held_bytes)
    checksums.save_checked_json(keep_in / FILE, {"made_for": key, "choice": choice.to_dict()})
    session.chose(choice)
    if asked is not None and not is_cpu(device):
        given_limit(device, asked)
    return int(choice.value)


def _kept(file: Path, key: str, warn: Callable[[str], object]) -> Choice | None:
    kept = checksums.recall_json(file, warn)
    if kept.get("made_for") != key:
        return None
    earlier = Choice(**kept["choice"])
    return replace(earlier, reason=f"as the unfinished masks began: {earlier.reason.rpartition('began: ')[2]}")


def _measured(session: Session, spec: PredictorSpec, *, held_bytes: int) -> Choice:
    device = torch_device(spec.device)
    limit = limit_elsewhere(device, session.settings.memory_bytes)
    session.chose(limit.choice)
    trial = BatchTrial(spec, limit.enforced_bytes(device))
    prober = Prober(
        TARGET,
        lambda _way: trial,
        device=device,
        limit=limit,
        on_event=session.on_event,
        usual=_USUAL_PROBES,
        words=lambda _way, batch: format_count(batch, "patch", "patches") + " at once",
    )
    room = _room(prober, spec, limit, held_bytes=held_bytes)
    at_most, first = (USUAL_BATCH, (1, USUAL_BATCH)) if is_cpu(device) else (_LARGEST_BATCH, _FIRST)
    found = find_largest(prober, "evaluation", room, at_most=at_most, first=first)
    prober.finish()
    return largest_fitting(found, room)


def _room(prober: Prober, spec: PredictorSpec, limit: MemoryLimit, *, held_bytes: int) -> MemoryRoom:
    """The limit, less what this process holds and a probe does not: the sums of the mask, GDAL's blocks, and itself."""
    device = torch_device(spec.device)
    if not is_cpu(device):
        return MemoryRoom(limit.num_bytes, beside_bytes=held_memory_bytes(device) or 0)
    (first,) = prober("evaluation", [1])
    bare_bytes = first.measured.parts["baseline"] if first.measured else 0
    return MemoryRoom(limit.num_bytes, cache_bytes=CACHE_BYTES + held_bytes, beside_bytes=max(0, own_bytes() - bare_bytes))


def largest_fitting(found: Sequence[ProbeResult], room: MemoryRoom) -> Choice:
    """The largest batch that was tried and fits, with what was measured; `MachineError` with numbers where none does."""
    tried = [
        {"batch": one.batch, "fact": one.fact, "peak_bytes": one.measured.peak_bytes if one.measured else None} for one in found
    ]
    evidence = {"limit_bytes": room.limit_bytes, "step_bytes": room.step_bytes, "tried": tried}
    fitting = [one for one in found if one.measured and one.measured.peak_bytes <= room.step_bytes]
    if not fitting:
        raise MachineError(
            f"not even one patch at a time fits in {format_bytes(room.limit_bytes)}",
            code="batch-does-not-fit",
            why=f"{format_bytes(max(0, room.step_bytes))} of it are left for the network, and one patch took: {found[0].fact}",
            try_="a larger --memory",
        )
    best = max(fitting, key=lambda one: one.batch)
    patches, left = format_count(best.batch, "patch", "patches"), format_bytes(room.step_bytes)
    reason = f"{patches} at once took {best.fact}; {left} of the limit are left for the network"
    return Choice("batch", best.batch, reason, evidence)
