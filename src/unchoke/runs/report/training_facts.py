"""How a network was trained, in words and numbers: shared by the text and the HTML renderers.

In comes a record, out come pairs of a word and what it says, where the seconds of training went, and what the planned memory is
made of. All are empty for runs that trained heads on pooled features alone. No markup, no layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from unchoke.core.metrics import in_order
from unchoke.core.units import format_bytes, format_count
from unchoke.runs.report import summary
from unchoke.runs.report import timeline_bars as timeline

if TYPE_CHECKING:
    from unchoke.core.record import LoopRecord, MemoryRecord, RunRecord, TargetsRecord, TrainingRecord

FactRows = list[tuple[str, str]]
_FUSIONS = {"mean": "averaged", "film": "fused by FiLM", "attention": "fused by attention"}
_MAIN = ("network", "pictures", "targets", "step", "precision", "course", "out of memory")
_PARTS = ("weights", "gradients", "optimizer", "activations", "cache", "overhead")
_ONE_TILE = "1×(1×1)"
_WORTH_SAYING = 0.005


class TimeShare(NamedTuple):
    """Seconds of training that went to one thing, and their share of all."""

    what: str
    seconds: float
    share: float


def facts(record: RunRecord) -> FactRows:
    """Everything worth knowing about the training, in the order a reader asks."""
    training = record.training
    if training is None or training.loop is None or not training.loop.to_dict():
        return []
    loop = training.loop
    said = {
        "network": _network(record.encoder.name or "network", training),
        "pictures": _pictures(record.encoder.image_px, training),
        "targets": _targets(training.targets) if training.targets else "",
        "target weights": _weights(training.targets) if training.targets else "",
        "extra inputs": ", ".join(record.data.inputs_summary or {}),
        "step": _step(training, loop),
        "precision": _precision(loop),
        "learning rate": _rates(loop),
        "averaging": _averaging(loop),
        "held back by": ", ".join(_restraints(loop)),
        "batch statistics": {"frozen": "frozen", "train": "trained"}.get(loop.batch_norm, ""),
        "course": _course(record, training),
        "out of memory": _out_of_memory(training),
    }
    return [(word, text) for word, text in said.items() if text]


def main_facts(record: RunRecord) -> FactRows:
    """The few of them that belong under a result."""
    return [(word, text) for word, text in facts(record) if word in _MAIN]


def _network(name: str, training: TrainingRecord) -> str:
    cut, num_blocks = training.cut, training.num_blocks
    if cut == "end":
        return f"{name}, all of it frozen"
    if cut == "blocks":
        return f"{name}, all of it frozen, pooled after several blocks"
    if cut == "pyramid":
        return f"{name}, all of it frozen; a decoder on its pyramid trained ({training.decoder})"
    if cut == "none":
        return f"{name}, all of it trained, from pixels"
    last = "last" if cut == "-1" else f"last {cut.removeprefix('-')}"
    of = f"of {num_blocks:.0f} blocks" if num_blocks else "block" if cut == "-1" else "blocks"
    return f"{name}, the {last} {of} trained" if cut else name


def _pictures(side_px: float | None, training: TrainingRecord) -> str:
    px = f"{side_px:.0f} px" if side_px else "the network's input size"
    if training.tiles in ("", _ONE_TILE):
        return f"whole, at {px}" if training.tiles else ""
    return f"{training.tiles} tiles (streams, then rows and columns) at {px}, {_FUSIONS.get(training.fusion, 'fused')}"


def _targets(plan: TargetsRecord) -> str:
    learned = ", ".join(plan.learned)
    if not learned:
        return ""
    sums = [f"{name} = {parts}" for name, parts in derived(plan).items()]
    return "; ".join([learned + " learned" + (", never negative" if plan.positive else ""), *sums])


def derived(plan: TargetsRecord | None) -> dict[str, str]:
    """Targets that are not learned but follow: ``{"total": "GDM + dead"}``, in the order of the targets."""
    if plan is None:
        return {}
    return {name: " + ".join(plan.sums[name]) for name in sorted(plan.sums, key=lambda one: in_order(one, plan.names))}


def sums_of(record: RunRecord) -> dict[str, str]:
    """As `derived`, of a run."""
    return derived(record.training.targets if record.training else None)


def _weights(plan: TargetsRecord) -> str:
    return ", ".join(f"{name} {weight:g}" for name, weight in zip(plan.names, plan.weights or [], strict=False))


def _step(training: TrainingRecord, loop: LoopRecord) -> str:
    batch, evaluated = loop.batch_size, loop.eval_batch
    at_once = training.sub_batch_at_the_end or loop.sub_batch
    if not batch:
        return ""
    parts = f", {at_once:.0f} at once" if at_once and at_once < batch else ""
    return f"{format_count(int(batch), 'sample')}{parts}" + (f"; {evaluated:.0f} at once in evaluation" if evaluated else "")


def _precision(loop: LoopRecord) -> str:
    wanted = {
        "channels last": loop.memory_format == "channels_last",
        "compiled": loop.compile,
        "gradient checkpointing": loop.grad_ckpt,
    }
    return ", ".join([*([loop.dtype] if loop.dtype else []), *(word for word, on in wanted.items() if on)])


def _rates(loop: LoopRecord) -> str:
    head, body = loop.lr, loop.body_lr
    if head is None:
        return ""
    said = [f"{head:g} for the head" if body else f"{head:g}"]
    if body:
        decay = loop.layer_decay
        said.append(f"{body:g} for the backbone's last layer" + (f", each before it {decay:g} times the next" if decay else ""))
    if warmup := loop.warmup_epochs:
        said.append(f"{warmup:g} {'epoch' if warmup == 1 else 'epochs'} of warm-up, then a cosine")
    return "; ".join(said)


def _averaging(loop: LoopRecord) -> str:
    if loop.ema_decay is None:
        return ""
    return f"weights are averaged over steps, decay {loop.ema_decay:g}" if loop.ema_decay else "none"


def _restraints(loop: LoopRecord) -> Iterator[str]:
    words = {
        "weight decay": loop.weight_decay,
        "gradients clipped at": loop.clip,
        "mixup": loop.mixup,
        "label smoothing": loop.label_smoothing,
    }
    yield from (f"{word} {value:g}" for word, value in words.items() if value)
    if loop.class_weights not in (None, "none"):
        yield f"{loop.class_weights} class weights"


def _course(record: RunRecord, training: TrainingRecord) -> str:
    if training.num_steps is None:
        return ""
    best = summary.picked_epoch(record)
    said = [f"{format_count(int(training.num_steps), 'step')} in {format_count(len(record.history), 'epoch')}"]
    said += [f"epoch {best:g} was kept"] if best else []
    said += [f"went on from step {training.resumed_step:.0f} after a stop"] if training.resumed_step else []
    return ", ".join(said)


def _out_of_memory(training: TrainingRecord) -> str:
    times, left = training.out_of_memory_halvings, training.sub_batch_at_the_end
    if not times:
        return ""
    after = f", at the end {left:.0f} at once" if left else ""
    return f"{format_count(int(times), 'time')}: what did not fit was halved and run again, same samples{after}"


def seconds(record: RunRecord) -> list[TimeShare]:
    """What the time of training went to. Preparing data happens inside the steps and is taken off them."""
    known = {name: value for name, value in (record.training.seconds if record.training else {}).items() if value >= 0}
    if not known:
        return []
    named = {
        "steps": max(0.0, known.pop("step", 0.0) - known.get("preparing data", 0.0)),
        "preparing data": known.pop("preparing data", 0.0),
        "waiting for data": known.pop("waiting for data", 0.0),
        "evaluation": known.pop("evaluate", 0.0),
        "checkpoints": known.pop("checkpoint", 0.0),
        **known,
    }
    named["beginning and ending"] = max(0.0, record.last_timings.get("train", 0.0) - sum(named.values()))
    total = sum(named.values())
    return [TimeShare(what, value, value / total) for what, value in named.items() if value > 0]


def shares_text(record: RunRecord) -> str:
    """``forward 31 %, backward 53 %, evaluation 5 %``: the time of training in one line."""
    parts = [(part.label, part.share) for part in timeline.stages(record)]
    known = parts or [(spent.what, spent.share) for spent in seconds(record)]
    return ", ".join(f"{what} {share * 100:.0f} %" for what, share in known if not parts or share >= _WORTH_SAYING)


def memory_parts(memory: MemoryRecord) -> list[tuple[str, float]]:
    """What the planned memory is made of, in bytes."""
    found = [(name, value) for name, value in (memory.plan.parts if memory.plan else {}).items() if value >= 0]
    return sorted(found, key=lambda part: in_order(part[0], _PARTS))


def memory_text(memory: MemoryRecord) -> str:
    """``3.1 GB planned of a limit of 4.0 GB, 3.0 GB measured (weights 90 MB, …)``."""
    limit = memory.plan.limit_bytes if memory.plan else None
    most = "at most " if memory.plan and memory.plan.counted else ""
    planned = f"{most}{format_bytes(memory.planned_bytes)} planned" if memory.planned_bytes else ""
    words = [planned + (f" of a limit of {format_bytes(limit)}" if limit else "")] if planned else []
    words += [f"{format_bytes(memory.measured_bytes)} measured"] if memory.measured_bytes else []
    parts = ", ".join(f"{name} {format_bytes(value)}" for name, value in memory_parts(memory) if value)
    return ", ".join(words) + (f" (planned: {parts})" if parts and words else "")
