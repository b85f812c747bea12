"""`unchoke profile -- COMMAND`: where the time of any PyTorch script goes, the script unchanged.

In: a command. Out: its exit code, where each step's time went, findings ranked by gain, and `recording.json` and `findings.json`
below `logs/profiler/`. The command runs as always; then, where loading holds it back, once more for a few steps on one batch,
without touching its files, to see how fast a step would be if loading were free.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from unchoke.chokes import breakdown
from unchoke.chokes.recording import Recording, Replay, load_recording
from unchoke.chokes.remedy_trials import try_remedies
from unchoke.chokes.script_profile_text import render_script_profile
from unchoke.chokes.script_run import REPLAY_STEPS, run_watched
from unchoke.chokes.script_run import replay as run_replay
from unchoke.core import atomic
from unchoke.core.errors import UsageError
from unchoke.core.events import Note, OnEvent, StageDone, StageStarted, ignore
from unchoke.core.findings import Finding
from unchoke.core.setting_values import refuse_number
from unchoke.core.temporary_folders import scratch_folder
from unchoke.core.units import format_seconds
from unchoke.core.workspace import DEFAULT_ROOT, Workspace, out_option

Diagnose = Callable[[Recording], Iterable[Finding]]

_LITTLE = 0.03
_LOADER_FIELDS = ("number", "dataset", "batch_size", "num_workers", "iterators", "startup_s", "batches", "samples", "evaluation")


@dataclass(frozen=True)
class ScriptProfile:
    """What was recorded and found. `exit_code` is the command's own; 0 for one that was stopped as asked."""

    recording: Recording
    """What was recorded of the script."""
    findings: list[Finding]
    """What was found, the worst first."""
    folder: Path
    """Where the recording lies."""
    next_command: str
    """The command to go on with."""
    own_cpu_s: float = 0.0
    """CPU seconds that profiling took beside the script: starting it, waiting, judging."""

    @property
    def exit_code(self) -> int:
        """The script's own; 0 for one that was stopped as asked."""
        return 0 if self.stopped else self.recording.exit_code

    @property
    def stopped(self) -> str:
        """After how many steps it was stopped on request, in words; empty if it ran to its end."""
        return str(self.recording.facts.get("stopped", ""))

    def to_dict(self) -> dict[str, Any]:
        recording = self.recording
        samples, room = breakdown.per_sample(recording), breakdown.headroom(recording)
        return {
            "script": shlex.join(recording.command),
            "exit_code": recording.exit_code,
            "stopped": self.stopped,
            "wall_s": recording.wall_s,
            "steps": len(recording.steps),
            "trained_s": breakdown.trained_s(recording),
            "step_parts": [part.to_dict() for part in breakdown.step_parts(recording)],
            "loading_parts": [part.to_dict() for part in breakdown.loading_parts(recording)],
            "per_sample": samples.to_dict() if samples else None,
            "loaders": [{name: getattr(loader, name) for name in _LOADER_FIELDS} for loader in recording.loaders],
            "items_per_step": recording.steps.mean("items"),
            "device": recording.machine.get("device") or "",
            "headroom": room.to_dict() if room else None,
            "replay_note": recording.replay.note if recording.replay else "",
            "findings": [finding.to_dict() for finding in self.findings],
            "watching": breakdown.watching_cost(recording, self.own_cpu_s),
            "notes": list(recording.notes),
            "files": {name: str(self.folder / f"{name}.json") for name in ("recording", "findings")},
            "next_command": self.next_command,
        }

    def to_text(self) -> str:
        return render_script_profile(self.to_dict())


def profile(
    command: Sequence[str],
    *,
    steps: int | None = None,
    seconds: float | None = None,
    replay: bool = True,
    try_fixes: bool = False,
    out: Path | str | None = None,
    stdout_to_stderr: bool = False,
    on_event: OnEvent | None = None,
    diagnose: Diagnose | None = None,
) -> ScriptProfile:
    """Run `command` and say where its time went. `steps` and `seconds` of training stop it early; `replay` measures head-room.

    `try_fixes` runs it some more times, sandboxed, with what the first findings suggest switched on, and says what that brought.
    `diagnose` turns the recording into findings; left out, it is the one of `unchoke.chokes.diagnose`.
    """
    if not command:
        why = "what stands after `--` is run as it is"
        raise UsageError("no command to profile", code="nothing-to-profile", why=why, try_="unchoke profile -- python train.py")
    _refuse_missing_script(command)
    refuse_number("--steps", steps, example="50")
    refuse_number("--seconds", seconds, example="60")
    tell = on_event or ignore
    began_cpu_s = time.process_time()
    workspace = Workspace(Path(out) if out is not None else DEFAULT_ROOT)
    with scratch_folder("profile") as scratch:
        records = scratch / "records"
        records.mkdir()
        tell(StageStarted("watch", shlex.join(command)))
        ran = run_watched(command, records, steps=steps, seconds=seconds, stdout_to_stderr=stdout_to_stderr)
        recording = load_recording(records, command=command, exit_code=ran.exit_code, wall_s=ran.wall_s)
        ended = "stopped as asked" if recording.facts.get("stopped") else f"exit code {ran.exit_code}"
        tell(StageDone("watch", ran.wall_s, ended))
        if replay:
            recording = _with_replay(recording, scratch, tell)
        findings = list((diagnose or _diagnose)(recording))
        if try_fixes:
            findings = _with_trials(recording, findings, scratch, tell)
    folder = _save(recording, findings, workspace)
    next_command = _next(command, findings, workspace, tried=try_fixes)
    return ScriptProfile(recording, findings, folder, next_command, time.process_time() - began_cpu_s)


def _refuse_missing_script(command: Sequence[str]) -> None:
    """A script that is not there is said before a folder is made for what it would have done."""
    named = [word for word in command[1:2] if Path(command[0]).name.startswith("python") and word.endswith(".py")]
    if named and not Path(named[0]).exists():
        folder = shlex.quote(str(Path(named[0]).absolute().parent))
        raise UsageError(f"there is no script {named[0]}", code="no-such-file", why="python was to run it", try_=f"ls {folder}")


def _with_replay(recording: Recording, folder: Path, tell: OnEvent) -> Recording:
    reason = _no_replay_because(recording)
    if reason:
        return replace(recording, replay=Replay(note=reason))
    started_s = max(0.0, recording.wall_s - breakdown.trained_s(recording))
    about_s = started_s + REPLAY_STEPS * breakdown.trained_s(recording) / max(1, len(recording.steps))
    tell(
        StageStarted(
            "replay", f"a few steps on one batch, as if loading were free: at most {format_seconds(about_s)}; --no-replay"
        )
    )
    began_s = time.perf_counter()
    measured = run_replay(recording, folder)
    tell(StageDone("replay", time.perf_counter() - began_s))
    if not measured.steps:
        tell(Note(f"no head-room measured: {measured.note}", "warning"))
    return replace(recording, replay=measured)


def _with_trials(recording: Recording, findings: list[Finding], folder: Path, tell: OnEvent) -> list[Finding]:
    reason = _no_second_run_because(recording)
    if reason:
        tell(Note(f"nothing was tried: {reason}", "warning"))
        return findings
    return try_remedies(recording, findings, folder, tell=tell)


def _no_second_run_because(recording: Recording) -> str:
    """Why running it again would tell nothing; empty if it would."""
    if recording.exit_code and not recording.facts.get("stopped"):
        return f"the script failed (exit code {recording.exit_code})"
    return "the script trained in a process that it started itself" if recording.main.role != "main" else ""


def _no_replay_because(recording: Recording) -> str:
    reason = _no_second_run_because(recording)
    if reason:
        return reason
    if not recording.trained_loaders or not len(recording.steps):
        return "the script trained on no DataLoader"
    share = breakdown.waiting_share(recording)
    return f"loading takes {share:.1%} of a step: there is no more to gain from it" if share < _LITTLE else ""


def _diagnose(recording: Recording) -> Iterable[Finding]:
    from unchoke.chokes.diagnose import diagnose

    return diagnose(recording)


def _save(recording: Recording, findings: Sequence[Finding], workspace: Workspace) -> Path:
    when = datetime.now().strftime("%Y%m%d_%H%M%S_%f")[:-3]
    folder = workspace.logs / "profiler" / f"script_{when}"
    atomic.write_json(folder / "recording.json", recording.to_dict())
    atomic.write_json(folder / "findings.json", [finding.to_dict() for finding in findings])
    return folder


def _next(command: Sequence[str], findings: Sequence[Finding], workspace: Workspace, *, tried: bool) -> str:
    """Try what was suggested, where that can be done without an edit; else the same again, after one."""
    can_try = not tried and any(finding.evidence.get("remedy") for finding in findings)
    return f"unchoke profile{' --try' if can_try else ''}{out_option(workspace.root)} -- {shlex.join(command)}"
