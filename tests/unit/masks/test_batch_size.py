"""How many patches at once: the largest that was measured and fits, or a refusal with numbers."""

from __future__ import annotations

from errors import refused
from unchoke.machine.memory.memory_plan import MemoryRoom
from unchoke.machine.memory.probe import ProbeResult, StepCost
from unchoke.masks.batch_size import largest_fitting

ROOM = MemoryRoom(limit_bytes=1000, cache_bytes=200, beside_bytes=100, margin_share=0.1)


def took(batch: int, peak_bytes: int) -> ProbeResult:
    return ProbeResult(batch, "ok", StepCost(peak_bytes, 0.1), f"{peak_bytes} B")


def test_largest_fitting_batch_chosen() -> None:
    failed = ProbeResult(8, "out of memory", fact="it held too much")
    choice = largest_fitting([took(1, 300), took(4, 550), took(6, 700), failed], ROOM)
    assert (choice.name, choice.value) == ("batch", 4)
    assert "550 B" in choice.reason
    assert [one["peak_bytes"] for one in choice.evidence["tried"]] == [300, 550, 700, None]


def test_one_patch_too_large_refused() -> None:
    with refused("batch-does-not-fit", "1.0 kB", "600 B", "601 B"):
        largest_fitting([took(1, 601)], ROOM)
