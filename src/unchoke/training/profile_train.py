"""`profile train`: the first steps of a training of ours under torch.profiler, and where the time of a step goes without it.

In: DATA and the options of `train`. Out: traces and a page in `logs/profiler/`, the operators that took most, and a step divided
into its stages. Everything a training reads is prepared as `train` would, and is there for it afterwards; the training itself
is not kept, no run is recorded, and the settings are not remembered.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unchoke.core.errors import DataError, Interrupted
from unchoke.core.events import OnEvent
from unchoke.core.findings import Finding
from unchoke.core.record import ProfileRecord, RunRecord
from unchoke.core.timeline import Timeline
from unchoke.core.workspace import out_option
from unchoke.data.check_samples import prepare
from unchoke.runs.diagnosis import AROUND, diagnose_run, name_bottleneck
from unchoke.runs.report.text import join_parts, render_findings, render_profile
from unchoke.runs.report.view import step_table
from unchoke.runs.session import Session, open_session
from unchoke.training.build_record import as_typed, machine_facts
from unchoke.training.pipeline import prepare_training
from unchoke.training.step_profiler import StepProfiler, plan_profile, profile_record, profiling, too_short


@dataclass(frozen=True)
class TrainingProfile:
    """`profile` is what the profiler found; `step` where the time of a step went, `undisturbed` if without the profiler.

    `findings` say what held those steps back.
    """

    profile: dict[str, Any] = field(repr=False)
    """What the profiler found: traces, page, top operators."""
    step: dict[str, Any]
    """Where the time of a step went, by stage."""
    undisturbed: bool
    """Whether those steps ran without the profiler."""
    findings: list[Finding]
    """What was found, the worst first."""
    workspace: Path
    """The folder it belongs to."""
    next_command: str
    """The command to go on with."""

    def to_dict(self) -> dict[str, Any]:
        found = [finding.to_dict() for finding in self.findings]
        return {**self.__dict__, "workspace": str(self.workspace), "findings": found}

    def to_text(self) -> str:
        return join_parts(
            [
                step_table(self.step, undisturbed=self.undisturbed),
                render_findings(self.findings) if self.findings else "",
                render_profile(ProfileRecord.of(self.profile), root=self.workspace),
                f"next    {self.next_command}",
            ]
        )


def profile_train(
    data: str | Path | None = None, *, out: str | Path | None = None, on_event: OnEvent | None = None, **options: Any
) -> TrainingProfile:
    """Some steps of `train` under torch.profiler: where a step's time went, the top operators, a page. Keeps no run.

    Args:
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The profile, a step divided into its stages, and findings.

    Example:
        >>> unchoke.profile_train(out="work", batch_size=4, head="linear").step["num_steps"] > 0
        True
    """
    with open_session({"data": data, **options}, out=out, on_event=on_event, remembering=False) as session:
        plan = plan_profile(session, "train", stops=True)
        prepared = prepare(session)
        _, trainer, _ = prepare_training(session, prepared, prepared.findings, command="train")
        plan.folder.mkdir(parents=True, exist_ok=True)
        with (
            profiling(session, plan) as profiler,
            session.stage("train", trainer.detail),
            tempfile.TemporaryDirectory(prefix=".training-", dir=plan.folder) as folder,  # which goes away again
        ):
            try:
                trainer.train(Path(folder))
            except Interrupted:
                if not profiler.wants_stop:  # else it has seen enough
                    raise
        if not profiler.traces:
            raise DataError(
                "nothing was profiled",
                code="nothing-profiled",
                why=too_short(profiler),
                try_="--profile-wait 0 --profile-warmup 0, a smaller --batch-size, or more --epochs",
            )
        if not profiler.num_timed:
            timeline = session.timelines["train"]
        else:  # with as much of what readers did by then as falls to the steps after the profile
            part = profiler.num_timed / profiler.num_steps
            loaded = {name: (seconds * part, round(calls * part)) for name, (seconds, calls) in profiler.loaded.items()}
            timeline = Timeline.of_tally(profiler.timed, loaded, readers=profiler.num_readers)
        num_steps = profiler.num_timed or profiler.num_steps
        rows = [row for row in timeline.stages if row.stage not in ("evaluate", "checkpoint")]
        total_s = sum(row.seconds for row in rows)
        stages = [{"stage": row.stage, "seconds": row.seconds / num_steps, "share": row.seconds / total_s} for row in rows]
        return TrainingProfile(
            profile_record(session, profiler),
            {"num_steps": num_steps, "seconds": total_s / num_steps, "stages": stages},
            undisturbed=profiler.num_timed > 0,
            findings=_findings(session, profiler, timeline, num_steps),
            workspace=session.workspace.root,
            next_command=as_typed("train", session.settings) + out_option(session.workspace.root),
        )


def _findings(session: Session, profiler: StepProfiler, timed: Timeline, num_steps: int) -> list[Finding]:
    """What held the steps back: as of a run that had nothing but them."""
    record = RunRecord(
        command=as_typed("train", session.settings),
        choices=session.choices,
        machine=machine_facts(session),
        planned_epochs=session.settings.epochs,
        timings={"train": timed.wall_s},
        settings=session.settings.given(),
        timeline={"train": timed},
    )
    out = out_option(session.workspace.root)
    found = diagnose_run(record, out=out, min_saved_s=0.0)
    steps = {row.stage: row.seconds for row in timed.stages if row.stage not in AROUND}
    bound = name_bottleneck(record, steps, profiler.operators, num_recorded=profiler.num_recorded, num_steps=num_steps, out=out)
    return [*found, *([bound] if bound else [])]
