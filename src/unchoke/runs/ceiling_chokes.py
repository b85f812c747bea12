"""Why a stage of a run of ours stayed far below what its parts can do: the largest of the losses that its clocks account for.

In: a record with ceilings (`core/ceilings.py`). Out: one cause for each stage that reached less than `LOW_SHARE` of what is
possible, whatever it takes of the whole run; a stage at or above it has none. A loss is a sum of seconds that would not have been
spent at the ceiling; the largest names the cause, and all of them are in its evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from unchoke.core.ceilings import Ceiling
from unchoke.core.findings import Cause, CodeLine, per
from unchoke.core.timeline import Timeline
from unchoke.core.units import format_count, format_seconds
from unchoke.runs.report.timeline_bars import ceiling_sentence
from unchoke.runs.run_facts import AROUND, RunFacts, loading_s

_HINDERED = 1.5
"""Readers that take so many times as long for an item as one alone are in one another's way."""
_STORAGE = ("open", "read", "stat", "list")
_CHECKPOINT_EVERY_S = 300
_JOB_SIZE = 64
_ONCE_EACH = {"extract": ("write",), "train": ("forward", "replay")}
"""Stages of the clock that each job or step enters once."""
_CLAIMED = {"wait": {"wait", "decode"}, "load": {"load"}, "evaluate": {"evaluate"}, "checkpoint": {"checkpoint"}}
"""By what a loss is of: the stages of other findings that speak of the same seconds."""


@dataclass(frozen=True)
class StageFacts:
    """One stage below its ceiling, with all that a cause is told from."""

    name: str
    ceiling: Ceiling
    timeline: Timeline
    run: RunFacts

    @property
    def readers(self) -> int:
        return max(1, int(self.ceiling.facts.get("readers", 0)) or self.timeline.readers)

    @property
    def reader_s(self) -> float:
        """Seconds of readers for one item, in the run."""
        return per(loading_s(self.timeline), self.ceiling.num_items)

    @property
    def alone_s(self) -> float:
        """The same of one reader alone."""
        part = self.ceiling.part("reading")
        return 1 / part.alone_per_s if part else 0.0

    def needed_s(self, part: str) -> float:
        """What one part needs for all items, alone."""
        found = self.ceiling.part(part)
        return self.ceiling.num_items / found.per_s if found else 0.0

    @property
    def started_s(self) -> float:
        """How much longer the first job or step took than one takes."""
        times = sum(self.timeline.calls(name) for name in _ONCE_EACH[self.name]) if self.name in _ONCE_EACH else 0
        return max(0.0, self.timeline.first_s - per(self.timeline.wall_s, times))


@dataclass(frozen=True)
class Loss:
    """Seconds of a stage that would not have been spent at its ceiling, and how to speak of them."""

    of: str
    seconds: float
    tell: Callable[[StageFacts], Remark]


@dataclass(frozen=True)
class Remark:
    """Why, and what to do about it."""

    code: str
    why: str
    fix: str
    edit: str = ""
    place: CodeLine = field(default_factory=CodeLine)
    evidence: dict[str, Any] = field(default_factory=dict)


def below_ceiling(run: RunFacts, *, told: Collection[str] = ()) -> Iterator[Cause]:
    """One cause for each stage far below its ceiling; none where a finding with a stage in `told` speaks of the same seconds."""
    for name, ceiling in run.record.ceilings.items():
        if not ceiling.is_low:
            continue
        stage = StageFacts(name, ceiling, run.record.timeline.get(name, Timeline(0.0)), run)
        losses = _LOSSES.get(name, _reading_losses)(stage)
        largest = max(losses, key=lambda loss: loss.seconds)
        if largest.seconds <= 0.1 * ceiling.lost_s:
            largest = Loss("other", ceiling.lost_s, _unexplained)
        if not _CLAIMED.get(largest.of, set()) & set(told):
            yield _cause(stage, largest, losses)


def _cause(stage: StageFacts, loss: Loss, losses: list[Loss]) -> Cause:
    ceiling, remark = stage.ceiling, loss.tell(stage)
    return Cause(
        remark.code,
        loss.of,
        min(loss.seconds, ceiling.lost_s),
        f"{ceiling_sentence(stage.name, ceiling)}: {remark.why}",
        remark.fix,
        remark.place,
        {
            "share": ceiling.share,
            "reached_per_s": ceiling.reached_per_s,
            **{f"{part.part}_per_s": part.per_s for part in ceiling.parts},
            **ceiling.facts,
            "lost_s": ceiling.lost_s,
            **{f"lost_{one.of}_s": one.seconds for one in losses},
            **remark.evidence,
        },
        remark.edit,
    )


# -- which seconds were lost -------------------------------------------------------------------------------------------------


def _extraction_losses(stage: StageFacts) -> list[Loss]:
    """Jobs run side by side, so their seconds count as far as all of them spend them at once.

    What went by before the first was done was spent where most was spent, and is claimed once.
    """
    spent, ceiling, slots = stage.timeline, stage.ceiling, max(1, stage.timeline.slots)
    reading_s = stage.needed_s("reading") if ceiling.in_turn else 0.0
    started_s, load_s, encode_s = stage.started_s, spent.seconds("load") / slots, spent.seconds("encode") / slots
    before_reading_s, before_computing_s = (started_s, 0.0) if load_s > encode_s else (0.0, started_s)
    return [
        Loss("load", load_s - reading_s - before_reading_s, _tell_reading),
        Loss("encode", encode_s - stage.needed_s("engine") - before_computing_s, _tell_engine),
        Loss("decode", spent.seconds("decode") / slots - stage.needed_s("decoding"), _tell_decoding),
        Loss("write", spent.seconds("collate", "write", "other") / slots, _tell_writing),
        Loss("idle", ceiling.wall_s - spent.wall_s / slots, _tell_draining),
        Loss("start", started_s, _tell_start),
    ]


def _training_losses(stage: StageFacts) -> list[Loss]:
    spent, ceiling = stage.timeline, stage.ceiling
    own_per_s, best = ceiling.facts.get("step_per_s", 0.0), ceiling.part("step")
    own_s, best_s = per(ceiling.num_items, own_per_s), per(ceiling.num_items, best.per_s if best else 0.0)
    started_s = stage.started_s
    steps_s = spent.wall_s - spent.seconds(*AROUND, "wait")
    return [
        Loss("wait", spent.seconds("wait"), _tell_reading),
        Loss("evaluate", spent.seconds("evaluate"), _tell_evaluation),
        Loss("checkpoint", spent.seconds("checkpoint"), _tell_checkpoints),
        Loss("batch", own_s - best_s, _tell_small_batches),
        Loss("step", steps_s - own_s - started_s, _tell_disturbed),
        Loss("start", started_s, _tell_start),
    ]


def _reading_losses(stage: StageFacts) -> list[Loss]:
    """Of stages that only read."""
    return [Loss("load", stage.ceiling.lost_s, _tell_reading)]


_LOSSES = {"extract": _extraction_losses, "train": _training_losses}


# -- what to say of them -----------------------------------------------------------------------------------------------------


def _tell_reading(stage: StageFacts) -> Remark:
    """Whoever computes waits for pictures, although readers could bring them faster: they are slow together, or idle."""
    run, each, alone = stage.run, stage.reader_s, stage.alone_s
    evidence = {"reader_s": each, "alone_s": alone}
    slower = f"{format_count(stage.readers, 'reader')} took {_ms(each)} for what one alone does in {_ms(alone)}"
    storage_s = per(loading_s(stage.timeline, *_STORAGE), stage.ceiling.num_items)
    alone_storage_s = sum(stage.ceiling.alone_s.get(name, 0.0) for name in _STORAGE)
    if each > _HINDERED * alone and storage_s - alone_storage_s > (each - alone) / 2:
        why = f"{slower}, {_ms(storage_s)} of it to get at the file (a second time it takes {_ms(alone_storage_s)})"
        fix = "the place the files lie at is slow: copy them to a disk of this machine"
        return Remark("slow-storage", why, fix, place=run.place, evidence={**evidence, "storage_s": storage_s})
    if each > _HINDERED * alone:
        fewer = max(1, min(stage.readers, run.machine.workers or stage.readers) // 2)
        return Remark(
            "readers-collide",
            f"{slower}: they are in one another's way",
            "fewer readers bring as much, and leave more to those who compute",
            run.command("--workers", fewer),
            run.place,
            evidence,
        )
    busy = per(each * stage.ceiling.num_items, stage.readers * stage.ceiling.wall_s)
    in_jobs = stage.name == "extract" and stage.timeline.slots > 1
    half = run.command("--workers", max(1, stage.readers // 2))
    return Remark(
        "readers-idle",
        f"{format_count(stage.readers, 'reader')} read at full speed, but only {busy:.0%} of the time; the rest they waited for "
        "what they had read to be taken",
        "larger jobs are handed over less often" if in_jobs else "fewer readers suffice, and leave more to the thread that takes",
        _larger_jobs(stage) if in_jobs else half,
        run.place,
        {**evidence, "busy_share": busy},
    )


def _tell_engine(stage: StageFacts) -> Remark:
    spent_s, batch = stage.timeline.seconds("encode"), int(stage.ceiling.facts.get("batch", 0))
    engine = stage.ceiling.part("engine")
    alone = f", which does {engine.per_s:,.0f}/s alone" if engine else ""
    return Remark(
        "engine-disturbed",
        f"{format_seconds(spent_s)} of jobs' time went to the engine{alone} in batches of {batch}",
        "what reads takes time from what computes: fewer readers, or another batch, are tried and kept if they help",
        stage.run.tuning if stage.run.is_tunable else "",
    )


def _tell_decoding(stage: StageFacts) -> Remark:
    spent_s, needed_s = stage.timeline.seconds("decode"), stage.needed_s("decoding")
    return Remark(
        "decoder-disturbed",
        f"decoding on the device took {format_seconds(spent_s)}, and takes {format_seconds(needed_s)} alone",
        "pictures of many sizes, or of kinds the device does not know, are decoded in small parts: save them alike",
        place=stage.run.place,
    )


def _tell_writing(stage: StageFacts) -> Remark:
    spent = {name: stage.timeline.seconds(name) for name in ("collate", "write", "other")}
    parts = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in spent.items())
    fix = "a workspace on a faster disk, with --out" if spent["write"] > max(spent["collate"], spent["other"]) else ""
    fix = fix or "larger jobs have less around them"
    return Remark("slow-writing", f"jobs spent {parts} besides reading and computing", fix, _larger_jobs(stage))


def _tell_draining(stage: StageFacts) -> Remark:
    idle_s, slots = stage.ceiling.wall_s - stage.timeline.wall_s / max(1, stage.timeline.slots), stage.timeline.slots
    return Remark(
        "jobs-drain",
        f"for {format_seconds(idle_s)} of {format_seconds(stage.ceiling.wall_s)} fewer than {format_count(slots, 'job')} ran: "
        "one had ended and the next had not begun",
        "larger jobs end less often",
        _larger_jobs(stage),
    )


def _tell_start(stage: StageFacts) -> Remark:
    first = "job" if stage.name == "extract" else "step"
    return Remark(
        "slow-start",
        f"the first {first} was done after {format_seconds(stage.timeline.first_s)}: kernels were loaded, and what "
        "stays on the device was put there",
        "a process loads them once: longer runs, or several from one Python process (`unchoke.fit`), pay for it once",
    )


def _tell_evaluation(stage: StageFacts) -> Remark:
    training = stage.run.record.training
    batch = int((training.loop.eval_batch if training and training.loop else None) or 0)
    spent_s = stage.timeline.seconds("evaluate")
    return Remark(
        "much-evaluation",
        f"evaluation took {format_seconds(spent_s)} of {format_seconds(stage.ceiling.wall_s)}, in batches of {batch or '?'}",
        "larger batches need fewer passes; a smaller --val-share has less to judge",
        stage.run.command("--eval-batch", 4 * batch) if batch else "",
        evidence={"eval_batch": batch},
    )


def _tell_checkpoints(stage: StageFacts) -> Remark:
    calls, spent_s = stage.timeline.calls("checkpoint"), stage.timeline.seconds("checkpoint")
    return Remark(
        "much-saving",
        f"{format_count(calls, 'snapshot')} took {format_seconds(spent_s)} of {format_seconds(stage.ceiling.wall_s)}",
        f"keep one every {_CHECKPOINT_EVERY_S} s: no more than that is done again after a kill",
        stage.run.command("--checkpoint-every", _CHECKPOINT_EVERY_S),
    )


def _tell_small_batches(stage: StageFacts) -> Remark:
    facts = stage.ceiling.facts
    batch, larger = int(facts.get("batch", 0)), int(facts.get("larger_batch", 0))
    own, best = facts.get("step_per_s", 0.0), facts.get("larger_per_s", 0.0)
    return Remark(
        "small-batches",
        f"a step over {batch} does {own:,.0f}/s alone, one over {larger} {best:,.0f}/s: the device waits to be told what to do",
        "larger batches keep it busy (which is another training: compare its score)",
        stage.run.command("--batch-size", larger),
    )


def _tell_disturbed(stage: StageFacts) -> Remark:
    facts = stage.ceiling.facts
    spent_s = stage.timeline.wall_s - stage.timeline.seconds(*AROUND, "wait") - stage.started_s
    batch = facts.get("batch", 0)
    step_s, alone_s = per(spent_s * batch, stage.ceiling.num_items), per(batch, facts.get("step_per_s", 0.0))
    return Remark(
        "steps-disturbed",
        f"a step took {_ms(step_s)}, and takes {_ms(alone_s)} alone on a batch that is there: something takes turns with it",
        "fewer readers leave more to the thread that trains",
        stage.run.command("--workers", max(1, stage.readers // 2)),
        evidence={"step_s": step_s, "alone_step_s": alone_s},
    )


def _unexplained(stage: StageFacts) -> Remark:
    if stage.name != "train" or not stage.run.is_tunable or stage.run.record.ladder:
        return Remark("below-ceiling", "its clocks do not say why", "the timeline in its report shows where its time went")
    profile = re.sub("^unchoke (fit|train) ", "unchoke profile train ", stage.run.record.command) + stage.run.out
    return Remark("below-ceiling", "its clocks do not say why", "a profile shows what it does instead", profile)


def _larger_jobs(stage: StageFacts) -> str:
    return stage.run.command("--job-size", 4 * int(stage.run.record.settings.get("job_size") or _JOB_SIZE))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
