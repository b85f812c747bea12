"""How many patches are predicted at once: measured under a limit, or the usual number.

In: a session and a predictor. Out: a batch size, with its reason. Sizes are tried in a process of their own. What was chosen is
kept beside the unfinished masks and stands until they are finished, so that a mask that goes on is made of the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.core.events import Progress
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.backend import held_memory_bytes, is_cpu, torch_device
from unchoke.machine.memory.memory_plan import MemoryLimit, MemoryRoom, StepCost, choose_limit, largest_fitting
from unchoke.machine.memory.memory_watch import own_bytes
from unchoke.machine.memory.probe import probe
from unchoke.masks.trained_segmenter import TARGET, BatchTrial, PredictorSpec
from unchoke.runs.session import Session
from unchoke.scenes.handles import CACHE_BYTES

FILE = "batch.json"
USUAL_BATCH = 8
_LARGEST_BATCH = 64
_TIMEOUT_S = 900.0


def choose_batch(session: Session, spec: PredictorSpec, *, held_bytes: int, keep_in: Path) -> int:
    """The batch this work began with, or one chosen now. `held_bytes` is what stitching takes beside the network."""
    device, asked = torch_device(spec.device), session.settings.memory_bytes
    if asked is None and is_cpu(device):
        reason = "on a processor more at once gain little; with --memory, what fits is measured"
        session.chose(Choice("batch", USUAL_BATCH, reason))
        return USUAL_BATCH
    limit = choose_limit(device, asked)
    session.chose(limit.choice)
    key = digest([spec.identity(), asked, held_bytes])
    kept = checksums.recall_json(keep_in / FILE, session.warn)
    if kept.get("made_for") == key:
        earlier = Choice(**kept["choice"])
        choice = replace(earlier, reason=f"as the unfinished masks began: {earlier.reason.rpartition('began: ')[2]}")
    else:
        choice = _measured(session, spec, limit, held_bytes=held_bytes)
    checksums.save_checked_json(keep_in / FILE, {"made_for": key, "choice": choice.to_dict()})
    session.chose(choice)
    return int(choice.value)


def _measured(session: Session, spec: PredictorSpec, limit: MemoryLimit, *, held_bytes: int) -> Choice:
    device = torch_device(spec.device)
    room = MemoryRoom(limit.num_bytes, beside_bytes=held_memory_bytes(device) or 0)
    if is_cpu(device):
        room = MemoryRoom(limit.num_bytes, cache_bytes=CACHE_BYTES + held_bytes, process_bytes=own_bytes())
    most = USUAL_BATCH if is_cpu(device) else _LARGEST_BATCH
    sizes = [2**power for power in range(most.bit_length())]

    def tell(cost: StepCost) -> None:
        done = sizes.index(cost.batch) + 1
        tried = f"{format_count(cost.batch, 'patch', 'patches')} at once"
        session.on_event(Progress("memory", done, len(sizes), "sizes", extra={"tried": tried}))

    trial = BatchTrial(spec, sizes, limit.enforced_bytes(device))
    bound = limit.num_bytes if is_cpu(device) else None
    found = probe(TARGET, trial, timeout_s=_TIMEOUT_S, limit_bytes=bound, on_value=tell)
    return largest_batch(found.values, room, found.fact)


def largest_batch(found: Sequence[StepCost], room: MemoryRoom, fact: str = "") -> Choice:
    """The largest batch that was tried and fits, with what was measured; `MachineError` with numbers where none does."""
    tried = [{"batch": one.batch, "peak_bytes": one.peak_bytes} for one in found]
    left_bytes = room.step_bytes(found[0].parts.get("baseline", 0) if found else 0)
    best, left = largest_fitting(found, room), format_bytes(max(0, left_bytes))
    if best is None:
        raise MachineError(
            f"not even one patch at a time fits in {format_bytes(room.limit_bytes)}",
            code="batch-does-not-fit",
            why=f"{left} of it are left for the network; one patch: {format_bytes(found[0].peak_bytes) if found else fact}",
            try_="a larger --memory",
        )
    patches = format_count(best.batch, "patch", "patches")
    reason = f"{patches} at once took {format_bytes(best.peak_bytes)}; {left} of the limit are left for the network"
    return Choice("batch", best.batch, reason, {"limit_bytes": room.limit_bytes, "step_bytes": left_bytes, "tried": tried})
