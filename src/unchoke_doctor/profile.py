"""`unchoke profile -- COMMAND`: which lines of a training script each step's time goes to, the script unchanged.

In: a command. Out: its exit code, the user's own lines by share of a step, the causes that explain them, and below
`logs/profiler/` of the workspace `recording.json` and `findings.json`. The command runs as always; then, where loading holds it
back, once more for a few steps on one batch, without touching its files, to see how fast a step would be if loading were free.
`save` keeps the step times, `against` compares with kept ones and tells whether steps became slower.
"""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from unchoke_doctor import profile_report, step_times
from unchoke_doctor.causes.diagnose import diagnose
from unchoke_doctor.causes.figures import Figures, per
from unchoke_doctor.errors import UsageError
from unchoke_doctor.files import check_output, write_json
from unchoke_doctor.finding import Finding
from unchoke_doctor.recording import Recording, Replay, load_recording
from unchoke_doctor.remedy_trials import try_remedies
from unchoke_doctor.script_run import REPLAY_STEPS, run_watched
from unchoke_doctor.script_run import replay as run_replay
from unchoke_doctor.units import format_seconds

Say = Callable[[str], None]
_WORKSPACE = "unchoke-out"
_LITTLE = 0.03
_NUM_LINES = 30
_LOADER_FIELDS = (
    "number",
    "dataset",
    "batch_size",
    "num_workers",
    "iterators",
    "startup_s",
    "batches",
    "samples",
    "wait_s",
    "evaluation",
)


@dataclass(frozen=True)
class ScriptProfile:
    """What was recorded and found."""

    recording: Recording
    """What was recorded of the script."""
    findings: list[Finding]
    """The causes that were found, the largest gain first."""
    folder: Path
    """Where the recording lies."""
    next_command: str
    """The command to go on with."""
    own_cpu_s: float = 0.0
    """CPU seconds that profiling took beside the script: starting it, waiting, judging."""
    comparison: step_times.Comparison | None = None
    """The steps against saved ones, if that was asked for."""

    @property
    def exit_code(self) -> int:
        """The command's own; 0 if it was stopped as asked, 1 for steps that are slower than allowed."""
        own = 0 if self.stopped else self.recording.exit_code
        return own or int(self.comparison is not None and self.comparison.fails)

    @property
    def stopped(self) -> str:
        """After how many steps it was stopped on request, in words; empty if it ran to its end."""
        return str(self.recording.facts.get("stopped", ""))

    @cached_property
    def _figures(self) -> Figures:
        return Figures(self.recording)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The user's own lines by what they cost, whatever they do; `causes` names the findings that explain one."""
        run = self._figures
        found = []
        for group in run.groups[:_NUM_LINES]:
            row = group.to_dict(run.num_steps)
            drives = (group.row.file, row["function"]) in run.looping
            places = {(row["file"], row["line"]), (group.row.file, group.row.line)}
            if row["stage"] == "evaluation" and group.caller is not None:
                places.add((group.caller.file, group.caller.line))
            inside = (row["file"], row["function"])
            at = [one.code for one in self.findings if (one.path, one.line) in places]
            at += [one.code for one in self.findings if not drives and (one.path, one.evidence.get("function")) == inside]
            found.append({**row, "in_loop": drives, "causes": list(dict.fromkeys(at))})
        return found

    def to_dict(self) -> dict[str, Any]:
        recording, run = self.recording, self._figures
        room = run.headroom
        machine = recording.machine
        return {
            "script": shlex.join(recording.command),
            "exit_code": recording.exit_code,
            "stopped": self.stopped,
            "wall_s": recording.wall_s,
            "steps": run.num_steps,
            "micro_batches": run.accumulates,
            "trained_s": run.span_s if run.num_steps else 0.0,
            "lines": self.lines,
            "step_parts": [
                {"stage": stage, "seconds": per(seconds, max(1, run.num_steps)), "share": per(seconds, run.span_s)}
                for stage, seconds in run.stages.items()
            ],
            "loaders": [{name: getattr(loader, name) for name in _LOADER_FIELDS} for loader in recording.loaders],
            "device": run.device,
            "machine": {name: machine.get(name) for name in ("cores", "busy_cores", "torch_threads", "torch", "python")},
            "headroom": {"step_s": room.step_s, "free_s": room.free_s, "steps": room.steps, "share": room.share}
            if room
            else None,
            "replay_note": recording.replay.note if recording.replay else "",
            "findings": [finding.to_dict() for finding in self.findings],
            "comparison": self.comparison.to_dict() if self.comparison else None,
            "watching": self._watching(),
            "notes": [*recording.notes, *_unseen(run)],
            "files": {name: str(self.folder / f"{name}.json") for name in ("recording", "findings")},
            "next_command": self.next_command,
        }

    def _watching(self) -> dict[str, float]:
        """CPU seconds that being watched cost inside the script's processes, by their own account, and those of this command."""
        processes = self.recording.processes
        inside_s = sum(process.watching_s for process in processes)
        used_s = sum(process.usage.get("user_s", 0.0) + process.usage.get("system_s", 0.0) for process in processes)
        plain_s = max(0.0, used_s - inside_s)
        return {
            "inside_cpu_s": inside_s,
            "own_cpu_s": self.own_cpu_s,
            "script_cpu_s": plain_s,
            "share": per(inside_s + self.own_cpu_s, plain_s),
        }

    def to_text(self) -> str:
        return profile_report.render_text(self.to_dict())

    def to_github(self) -> str:
        """Annotations for GitHub Actions: an error where steps became slower, a warning for each finding."""
        return profile_report.render_github(self.to_dict())


def profile(
    command: Sequence[str],
    *,
    steps: int | None = None,
    seconds: float | None = None,
    replay: bool = True,
    try_fixes: bool = False,
    out: Path | str | None = None,
    save: Path | str | None = None,
    against: Path | str | None = None,
    fail_if_slower: float | None = None,
    stdout_to_stderr: bool = False,
    say: Say | None = None,
) -> ScriptProfile:
    """Run a training script as it is, and show which lines each step's time goes to, and why.

    Args:
        command: The command to run, as a list of words.
        steps: Stop after this many optimizer steps.
        seconds: Stop after this many seconds of training.
        replay: Run it once more on one batch, to measure a step with free loading.
        try_fixes: Run it some more times, sandboxed and unedited, with the remedies of the first findings switched on.
        out: Workspace folder (default unchoke-out).
        save: Save the step times to this file, for `against`.
        against: Compare the steps with those saved in this file.
        fail_if_slower: With `against`: a percentage; steps that are slower by more than this make the exit code 1.
        stdout_to_stderr: Send what the script prints to stderr.
        say: Called with each line of progress (default: nothing is said).

    Returns:
        What was recorded, the user's own lines by share, and findings that explain them.

    Example:
        >>> unchoke.profile(["python", "train.py"], replay=False, out="work", stdout_to_stderr=True).exit_code
        0
    """
    tell = say or (lambda _: None)
    base = _check(command, steps, seconds, save, against, fail_if_slower)
    began_cpu_s = time.process_time()
    with tempfile.TemporaryDirectory(prefix="unchoke-profile-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        records = scratch / "records"
        records.mkdir()
        tell(f"watch  {shlex.join(command)}")
        ran = run_watched(command, records, steps=steps, seconds=seconds, stdout_to_stderr=stdout_to_stderr)
        recording = load_recording(records, command=command, exit_code=ran.exit_code, wall_s=ran.wall_s)
        if replay:
            recording = replace(recording, replay=_replayed(recording, scratch, tell))
        findings = diagnose(recording)
        if try_fixes:
            reason = _no_second_run_because(recording)
            tell(f"note   nothing was tried: {reason}") if reason else None
            findings = findings if reason else try_remedies(recording, findings, scratch, say=tell)
    when = datetime.now().strftime("%Y%m%d_%H%M%S_%f")[:-3]
    kept = Path(out or _WORKSPACE) / "logs" / "profiler" / f"script_{when}"
    write_json(kept / "recording.json", recording.to_dict())
    write_json(kept / "findings.json", [finding.to_dict() for finding in findings])
    measured = step_times.of(Figures(recording))
    if save is not None:
        write_json(Path(save), measured.to_dict())
        tell(f"saved  {save}")
    comparison = step_times.compare(base, measured, limit_percent=fail_if_slower) if base is not None else None
    done = _next(command, findings, out, tried=try_fixes)
    return ScriptProfile(recording, findings, kept, done, time.process_time() - began_cpu_s, comparison)


def _check(
    command: Sequence[str],
    steps: int | None,
    seconds: float | None,
    save: Path | str | None,
    against: Path | str | None,
    limit: float | None,
) -> step_times.StepTimes | None:
    """Refuse what cannot work before anything runs; the steps to compare with."""
    if not command:
        why, try_ = "what stands after `--` is run as it is", "unchoke profile -- python train.py"
        raise UsageError("no command to profile", code="nothing-to-profile", why=why, try_=try_)
    if (steps is not None and steps < 1) or (seconds is not None and not 0.1 <= seconds < 1e9):
        why, try_ = "at least one step, and a tenth of a second, are needed", "--steps 50"
        raise UsageError(f"--steps {steps} --seconds {seconds}", code="bad-options", why=why, try_=try_)
    if limit is not None and against is None:
        why, try_ = "there is nothing to compare with", "--against base.json, made with --save"
        raise UsageError("--fail-if-slower without --against", code="options-conflict", why=why, try_=try_)
    named = [word for word in command[1:2] if Path(command[0]).name.startswith("python") and word.endswith(".py")]
    if named and not Path(named[0]).exists():
        try_ = f"ls {shlex.quote(str(Path(named[0]).absolute().parent))}"
        raise UsageError(f"there is no script {named[0]}", code="no-such-file", why="python was to run it", try_=try_)
    if save is not None:
        check_output(save, "--save", named)
    return step_times.load(Path(against)) if against is not None else None


def _replayed(recording: Recording, scratch: Path, tell: Say) -> Replay:
    """The step without loading; or why it was not measured."""
    run = Figures(recording)
    reason = _no_second_run_because(recording)
    if not reason and (not recording.trained_loaders or not run.num_steps):
        reason = "the script trained on no DataLoader"
    share = per(max(run.total_s("wait_s"), run.making_s / run.cores), run.span_s)
    if not reason and share < _LITTLE:
        reason = f"loading takes {share:.1%} of a step: there is no more to gain from it"
    if reason:
        return Replay(note=reason)
    about_s = max(0.0, recording.wall_s - run.span_s) + REPLAY_STEPS * run.span_s / run.num_steps
    tell(
        f"replay a few steps on one batch, as if loading were free: at most {format_seconds(about_s)}; --no-replay leaves it out"
    )
    measured = run_replay(recording, scratch)
    if not measured.steps:
        tell(f"note   no head-room measured: {measured.note}")
    return measured


def _no_second_run_because(recording: Recording) -> str:
    """Why running it again would tell nothing; empty if it would."""
    if recording.exit_code and not recording.facts.get("stopped"):
        return f"the script failed (exit code {recording.exit_code})"
    return "the script trained in a process that it started itself" if recording.main.role != "main" else ""


def _unseen(run: Figures) -> list[str]:
    """What the recording cannot tell, said in so many words."""
    notes = []
    if not run.num_steps and run.recording.main.samples:
        notes.append("no optimizer step of torch or Keras was seen: shares are of the whole run, and steps are not told apart")
    elif run.num_steps and not run.loaders:
        notes.append("no torch DataLoader was used: what makes batches is part of the lines, and there is no replay")
    if run.num_steps and not run.groups:
        notes.append("no line of the script's own was met: all the time went into installed packages")
    if run.accumulates >= 1.5:
        notes.append(f"gradients are accumulated: {run.accumulates:.0f} backward passes for each optimizer step")
    return notes


def _next(command: Sequence[str], findings: Sequence[Finding], out: Path | str | None, *, tried: bool) -> str:
    """Try what was suggested, where that can be done without an edit; else the same again, after one."""
    can_try = not tried and any(finding.evidence.get("remedy") for finding in findings)
    place = f" --out {shlex.quote(str(out))}" if out is not None else ""
    return f"unchoke profile{' --try' if can_try else ''}{place} -- {shlex.join(command)}"
