"""Whatever was measured and whatever the limit: a plan keeps it, and more memory never allows less."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unchoke.core.errors import MachineError
from unchoke.machine.memory.line import fit_line
from unchoke.machine.memory.memory_plan import MemoryPlan, MemoryRequest, MemoryRoom, Probes, choose_plan, even_part
from unchoke.machine.memory.probe import ProbeResult, StepCost

MB = 10**6
sizes = st.integers(1, 20_000).map(lambda megabytes: megabytes * MB)
batches = st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True).map(sorted)


@st.composite
def probed(draw: st.DrawFn) -> tuple[ProbeResult, ...]:
    """Points of any shape; perhaps the last one failed."""
    found = []
    for batch in draw(batches):
        peak = draw(sizes)
        parts = {"weights": draw(st.integers(0, peak)), "baseline": draw(st.integers(0, peak // 2))}
        found.append(ProbeResult(batch, "ok", StepCost(peak, draw(st.floats(0.001, 10)), parts), "fine"))
    if draw(st.booleans()):
        found.append(ProbeResult(found[-1].batch + draw(st.integers(1, 64)), "out of memory", fact="too much"))
    return tuple(found)


probes = st.builds(Probes, probed(), st.one_of(st.just(()), probed()), st.one_of(st.just(()), probed()))
rooms = st.builds(MemoryRoom, sizes, st.integers(0, 500 * MB), st.integers(0, 500 * MB))


def chosen(probes: Probes, room: MemoryRoom, batch: int) -> MemoryPlan | None:
    try:
        return choose_plan(probes, room, MemoryRequest(batch=batch), num_samples=1000)
    except MachineError:
        return None


@given(probes, rooms, st.integers(1, 256))
def test_plan_keeps_its_limit_and_covers_the_batch(probes: Probes, room: MemoryRoom, batch: int) -> None:
    plan = chosen(probes, room, batch)
    if plan is None:
        return
    assert plan.planned_bytes <= room.limit_bytes - room.margin_bytes
    tried = probes.train_ckpt if plan.grad_ckpt else probes.train
    whole = [one.measured.peak_bytes for one in tried if one.measured is not None and one.batch == plan.sub_batch == batch]
    assert min([*whole, plan.line.at(plan.sub_batch)]) <= room.step_bytes
    assert plan.eval_line is None or plan.eval_line.at(plan.eval_batch) <= room.step_bytes
    assert sum(plan.parts.values()) == plan.planned_bytes
    assert all(size >= 0 for size in plan.parts.values())
    assert 1 <= plan.sub_batch <= plan.batch == batch
    assert (plan.num_parts - 1) * plan.sub_batch < batch <= plan.num_parts * plan.sub_batch
    failed = [one.batch for one in tried if not one.fits]
    assert all(plan.sub_batch < size for size in failed)


@given(probes, rooms, st.integers(1, 256), st.integers(0, 20_000 * MB))
def test_more_memory_never_allows_less(probes: Probes, room: MemoryRoom, batch: int, more_bytes: int) -> None:
    larger = MemoryRoom(room.limit_bytes + more_bytes, room.cache_bytes, room.beside_bytes)
    before, after = chosen(probes, room, batch), chosen(probes, larger, batch)
    if before is None:
        return
    assert after is not None
    if before.grad_ckpt == after.grad_ckpt:
        assert after.sub_batch >= before.sub_batch


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(1, 1e12)), min_size=1, max_size=4, unique_by=lambda point: point[0]))
def test_line_never_falls_nor_below_what_was_measured(points: list[tuple[int, float]]) -> None:
    line = fit_line(points)
    values = [line.at(batch) for batch in range(1, 130)]
    assert values == sorted(values)
    assert all(line.at(batch) >= value * (1 - 1e-9) for batch, value in points)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_even_parts_are_within_limits(batch: int, largest: int) -> None:
    part = even_part(batch, largest)
    assert part <= largest
    assert -(-batch // part) == -(-batch // min(largest, batch))
