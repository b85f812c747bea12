"""How many patches at once: the largest that was measured and fits, or a refusal with numbers."""

from __future__ import annotations

from errors import refused
from unchoke.machine.memory.memory_plan import MemoryRoom, StepCost
from unchoke.masks.batch_size import largest_batch

ROOM = MemoryRoom(limit_bytes=1000, cache_bytes=220, beside_bytes=100)  # 600 are left


def test_largest_fitting_batch_chosen() -> None:
    choice = largest_batch([StepCost(1, 300), StepCost(4, 550), StepCost(8, 700)], ROOM)
    assert (choice.name, choice.value) == ("batch", 4)
    assert "550 B" in choice.reason
    assert [one["peak_bytes"] for one in choice.evidence["tried"]] == [300, 550, 700]


def test_one_patch_too_large_refused() -> None:
    with refused("batch-does-not-fit", "1.0 kB", "600 B", "601 B"):
        largest_batch([StepCost(1, 601)], ROOM)
