"""How a network was trained, in words and numbers: shared by the text and the HTML renderers.

In comes a record in JSON types, any part of which may be missing or odd; out come pairs of a word and what it says, where the
seconds of training went, and what the planned memory is made of. All are empty for runs that trained heads on pooled features
alone. No markup, no layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from unchoke.core.metrics import in_order
from unchoke.core.units import format_bytes, format_count
from unchoke.reports import summary
from unchoke.reports import timeline_bars as timeline
from unchoke.reports.summary import number, section

Facts = list[tuple[str, str]]
_FUSIONS = {"mean": "averaged", "film": "fused by FiLM", "attention": "fused by attention"}
_MAIN = ("network", "pictures", "targets", "step", "precision", "course", "out of memory")
_PARTS = ("weights", "gradients", "optimizer", "activations", "cache", "overhead")
_ONE_TILE = "1×(1×1)"
_WORTH_SAYING = 0.005


class Spent(NamedTuple):
    """Seconds of training that went to one thing, and their share of all."""

    what: str
    seconds: float
    share: float


def facts(record: Mapping[str, Any]) -> Facts:
    """Everything worth knowing about the training, in the order a reader asks."""
    training = section(record, "training")
    loop = section(training, "loop")
    if not loop:
        return []
    said = {
        "network": _network(record, training),
        "pictures": _pictures(record, training),
        "targets": _targets(training),
        "target weights": _weights(training),
        "extra inputs": ", ".join(section(section(record, "data"), "inputs_summary")),
        "step": _step(training, loop),
        "precision": _precision(loop),
        "learning rate": _rates(loop),
        "averaging": _averaging(loop),
        "held back by": ", ".join(_restraints(loop)),
        "batch statistics": {"frozen": "frozen", "train": "trained"}.get(str(loop.get("batch_norm")), ""),
        "course": _course(record, training),
        "out of memory": _out_of_memory(training),
    }
    return [(word, text) for word, text in said.items() if text]


def main_facts(record: Mapping[str, Any]) -> Facts:
    """The few of them that belong under a result."""
    return [(word, text) for word, text in facts(record) if word in _MAIN]


def _network(record: Mapping[str, Any], training: Mapping[str, Any]) -> str:
    name = str(section(record, "encoder").get("name") or "network")
    cut, num_blocks = str(training.get("cut", "")), number(training.get("num_blocks"))
    if cut == "end":
        return f"{name}, all of it frozen"
    if cut == "pyramid":
        return f"{name}, all of it frozen; a decoder on its pyramid trained ({training.get('decoder', 'unet')})"
    if cut == "none":
        return f"{name}, all of it trained, from pixels"
    last = "last" if cut == "-1" else f"last {cut.removeprefix('-')}"
    of = f"of {num_blocks:.0f} blocks" if num_blocks else "block" if cut == "-1" else "blocks"
    return f"{name}, the {last} {of} trained" if cut else name


def _pictures(record: Mapping[str, Any], training: Mapping[str, Any]) -> str:
    tiles, side = str(training.get("tiles", "")), number(section(record, "encoder").get("image_px"))
    px = f"{side:.0f} px" if side else "the network's input size"
    if tiles in ("", _ONE_TILE):
        return f"whole, at {px}" if tiles else ""
    return f"{tiles} tiles (streams, then rows and columns) at {px}, {_FUSIONS.get(str(training.get('fusion')), 'fused')}"


def _targets(training: Mapping[str, Any]) -> str:
    plan = section(training, "targets")
    learned = ", ".join(summary.texts(plan, "learned"))
    if not learned:
        return ""
    sums = [f"{name} = {parts}" for name, parts in derived({"training": training}).items()]
    return "; ".join([f"{learned} learned" + (", never negative" if plan.get("positive") is True else ""), *sums])


def derived(record: Mapping[str, Any]) -> dict[str, str]:
    """Targets that are not learned but follow: ``{"total": "GDM + dead"}``, in the order of the targets."""
    plan = section(section(record, "training"), "targets")
    sums = section(plan, "sums")
    order = summary.texts(plan, "names")
    return {name: " + ".join(summary.texts(sums, name)) for name in sorted(sums, key=lambda one: in_order(one, order))}


def _weights(training: Mapping[str, Any]) -> str:
    plan = section(training, "targets")
    names, weights = summary.texts(plan, "names"), plan.get("weights")
    known = [number(weight) for weight in weights] if isinstance(weights, list) else []
    return ", ".join(f"{name} {weight:g}" for name, weight in zip(names, known, strict=False) if weight is not None)


def _step(training: Mapping[str, Any], loop: Mapping[str, Any]) -> str:
    batch, evaluated = number(loop.get("batch_size")), number(loop.get("eval_batch"))
    at_once = number(training.get("sub_batch_at_the_end")) or number(loop.get("sub_batch"))
    if not batch:
        return ""
    parts = f", {at_once:.0f} at once" if at_once and at_once < batch else ""
    return f"{format_count(int(batch), 'sample')}{parts}" + (f"; {evaluated:.0f} at once in evaluation" if evaluated else "")


def _precision(loop: Mapping[str, Any]) -> str:
    wanted = {
        "channels last": loop.get("memory_format") == "channels_last",
        "compiled": loop.get("compile") is True,
        "gradient checkpointing": loop.get("grad_ckpt") is True,
    }
    said = [str(loop["dtype"])] if loop.get("dtype") else []
    return ", ".join([*said, *(word for word, on in wanted.items() if on)])


def _rates(loop: Mapping[str, Any]) -> str:
    head, body = number(loop.get("lr")), number(loop.get("body_lr"))
    if head is None:
        return ""
    said = [f"{head:g} for the head" if body else f"{head:g}"]
    if body:
        decay = number(loop.get("layer_decay"))
        said.append(f"{body:g} for the backbone's last layer" + (f", each before it {decay:g} times the next" if decay else ""))
    if warmup := number(loop.get("warmup_epochs")):
        said.append(f"{warmup:g} {'epoch' if warmup == 1 else 'epochs'} of warm-up, then a cosine")
    return "; ".join(said)


def _averaging(loop: Mapping[str, Any]) -> str:
    decay = number(loop.get("ema_decay"))
    if decay is None:
        return ""
    return f"weights are averaged over steps, decay {decay:g}" if decay else "none"


def _restraints(loop: Mapping[str, Any]) -> Iterator[str]:
    words = {
        "weight_decay": "weight decay",
        "clip": "gradients clipped at",
        "mixup": "mixup",
        "label_smoothing": "label smoothing",
    }
    for name, word in words.items():
        value = number(loop.get(name))
        if value:
            yield f"{word} {value:g}"
    if loop.get("class_weights") not in (None, "none"):
        yield f"{loop['class_weights']} class weights"


def _course(record: Mapping[str, Any], training: Mapping[str, Any]) -> str:
    steps, resumed = number(training.get("num_steps")), number(training.get("resumed_step"))
    epochs = len(summary.rows(record, "history"))
    if steps is None:
        return ""
    best = summary.picked_epoch(record)
    said = [f"{format_count(int(steps), 'step')} in {format_count(epochs, 'epoch')}"]
    said += [f"epoch {best:g} was kept"] if best else []
    said += [f"went on from step {resumed:.0f} after a stop"] if resumed else []
    return ", ".join(said)


def _out_of_memory(training: Mapping[str, Any]) -> str:
    times, left = number(training.get("out_of_memory_halvings")), number(training.get("sub_batch_at_the_end"))
    if not times:
        return ""
    after = f", at the end {left:.0f} at once" if left else ""
    return f"{format_count(int(times), 'time')}: what did not fit was halved and run again, same samples{after}"


def seconds(record: Mapping[str, Any]) -> list[Spent]:
    """What the time of training went to. Preparing data happens inside the steps and is taken off them."""
    timed = section(section(record, "training"), "seconds")
    known = {name: value for name in timed if (value := number(timed[name])) is not None and value >= 0}
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
    all_of_it = number(section(record, "timings").get("train")) or 0.0
    named["beginning and ending"] = max(0.0, all_of_it - sum(named.values()))
    total = sum(named.values())
    return [Spent(what, value, value / total) for what, value in named.items() if value > 0]


def shares_text(record: Mapping[str, Any]) -> str:
    """``forward 31 %, backward 53 %, evaluation 5 %``: the time of training in one line."""
    parts = [(part.label, part.share) for part in timeline.stages(record)]
    known = parts or [(spent.what, spent.share) for spent in seconds(record)]
    return ", ".join(f"{what} {share * 100:.0f} %" for what, share in known if not parts or share >= _WORTH_SAYING)


def memory_parts(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    """What the planned memory is made of, in bytes."""
    parts = section(section(section(record, "memory"), "plan"), "parts")
    known = [(name, number(value)) for name, value in parts.items()]
    found = [(name, value) for name, value in known if value is not None and value >= 0]
    return sorted(found, key=lambda part: in_order(part[0], _PARTS))


def memory_text(record: Mapping[str, Any]) -> str:
    """``3.1 GB planned of a limit of 4.0 GB, 3.0 GB measured (weights 90 MB, …)``."""
    held = section(record, "memory")
    planned, measured = number(held.get("planned_bytes")), number(held.get("measured_bytes"))
    limit = number(section(held, "plan").get("limit_bytes"))
    words = [f"{format_bytes(planned)} planned" + (f" of a limit of {format_bytes(limit)}" if limit else "")] if planned else []
    words += [f"{format_bytes(measured)} measured"] if measured else []
    parts = ", ".join(f"{name} {format_bytes(value)}" for name, value in memory_parts(record) if value)
    return ", ".join(words) + (f" (planned: {parts})" if parts and words else "")
