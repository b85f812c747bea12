"""`unchoke profile tile`: where tiling the user's own scenes spends its time, the plain way and as `unchoke tile` does it.

Both ways cut the same windows, once under cProfile for the `.prof` files and once on the clock. The plain way is that of a
notebook: each window is a strip of its own, for which every file is opened, read and closed again, and zlib compresses it as
`np.savez_compressed` does. The tiles go to a folder that is removed; settings are not remembered.
"""

from __future__ import annotations

import cProfile
import marshal
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from unchoke.core import atomic, listing
from unchoke.core.choices import Choice
from unchoke.core.clock import OTHER
from unchoke.core.events import OnEvent
from unchoke.core.findings import Finding, rank
from unchoke.core.setting_values import refuse_number
from unchoke.core.settings import typed_options
from unchoke.core.timeline import StageRow
from unchoke.core.units import format_count, format_seconds
from unchoke.core.workspace import out_option
from unchoke.jobs.job_engines import InProcessEngine
from unchoke.runs.report.layout import columns, wrap
from unchoke.runs.report.text import render_findings
from unchoke.runs.session import Session, open_session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.tiling.shared_blocks import SharedBlocks
from unchoke.scenes.tiling.tile import choose_masks, choose_tile_px, choose_workers, open_for_tiles, plan_specs
from unchoke.scenes.tiling.tiles import STAGES, StripResult, TileSpec, TileStrip, plan_strips, reading_box, run_strip

WINDOWS = 24
_MOST_SCENES = 4
_MENTIONED_SHARE = 0.05
"""Stages below this share of the plain way's time make no finding."""
_CLEARLY = 1.2
"""A stage makes a finding if this way is so many times quicker at it."""
_MOST_OF_IT = 0.4
_WASTED = {
    "open": ("files-opened-per-window", "opening files", "keep files open between windows: a bounded pool of handles"),
    "read": (
        *("blocks-decoded-again", "reading"),
        "read along the files' own blocks, each of them once, a strip of windows at a time",
    ),
    "normalise": ("normalised-with-copies", "dividing", "divide in place, a strip at a time"),
    "mask": ("mask-per-window", "making masks", "make the mask for a strip at a time"),
    "write": (
        "slow-compression",
        "np.savez_compressed (zlib)",
        "compress the NPZ with isal, which any np.load reads, or not at all",
    ),
    OTHER: ("time-between-stages", "between the stages", "work on strips of windows, so that there are fewer and larger steps"),
}
"""By stage: the code of the finding, what the plain way spends the time on, and the fix."""
_LIGHTER = {
    "float32": ("store the files' own numbers and normalise when they are loaded, or do not compress", "--store raw"),
    "raw": ("do not compress, if there is room for it", "--compress none"),
}
"""What makes writing lighter still, by how tiles are stored."""


@dataclass(frozen=True)
class TileProfile:
    """What was measured. `before` is the plain serial way, `after` the one of `unchoke tile`; `ratio` is of their wall-clock."""

    workspace: Path
    """The folder it belongs to."""
    windows: int
    """How many windows were measured."""
    tile_px: int
    """Their side."""
    scenes: list[str]
    """The scenes they were taken from."""
    threads: int
    """How many threads the quick way used."""
    before: list[StageRow]
    """The stages of the plain way."""
    after: list[StageRow]
    """The stages of the way of `tile`, in one thread."""
    seconds: dict[str, float]
    """Wall-clock seconds of each way."""
    size_ratio: float
    """How large the files of the quick way are beside those of the plain one."""
    equal: bool
    """Whether bands and masks of both ways are the same."""
    files: dict[str, Path]
    """The .prof files, by way."""
    findings: list[Finding]
    """What was found, the worst first."""
    choices: list[Choice]
    """What was chosen, with reasons."""
    next_command: str
    """The command to go on with."""

    ok = True

    @property
    def ratio(self) -> float:
        """How many times as fast, by wall-clock."""
        return self.seconds["before"] / max(1e-9, self.seconds["after"])

    @property
    def ratio_one_thread(self) -> float:
        """The same with one thread."""
        return self.seconds["before"] / max(1e-9, self.seconds["after_one_thread"])

    def to_dict(self) -> dict[str, Any]:
        files = {way: str(file) for way, file in self.files.items()}
        ratios = {"ratio": self.ratio, "ratio_one_thread": self.ratio_one_thread}
        return {**asdict(self), "workspace": str(self.workspace), "files": files, **ratios}

    def to_text(self) -> str:
        """The table, both ways timed, the findings, and how to look closer."""
        seconds, threads = self.seconds, format_count(self.threads, "thread")
        one = f" ({self.ratio_one_thread:.1f}× in one)" if self.threads > 1 else ""
        timed = (
            f"The table is of one thread. In all: {format_seconds(seconds['before'])} the plain way, "
            f"{format_seconds(seconds['after'])} as `unchoke tile` does it in {threads}: {self.ratio:.1f}× as fast{one}."
        )
        equal = "every band and mask is equal" if self.equal else "bands or masks DIFFER"
        parts = [
            f"{format_count(self.windows, 'window')} of {self.tile_px} px from {format_count(len(self.scenes), 'scene')}, "
            "the same ones both ways",
            render_stages(self.before, self.after),
            wrap(timed, indent=""),
            wrap(f"The tiles take {self.size_ratio:.2f}× the room of np.savez_compressed; {equal}.", indent=""),
            render_findings(self.findings) if self.findings else "",
            "\n".join(
                [f"look    snakeviz {shlex.quote(str(file))}" for file in self.files.values()] + [f"next    {self.next_command}"]
            ),
        ]
        return "\n\n".join(part for part in parts if part)


def render_stages(before: Sequence[StageRow], after: Sequence[StageRow]) -> str:
    """Share of time, time and calls of each stage, both ways side by side."""

    def cells(row: StageRow) -> tuple[str, str, str]:
        return f"{row.share * 100:.1f} %", format_seconds(row.seconds), f"{row.calls:,}" if row.calls else "-"

    rows = [(left.stage, *cells(left), *cells(right)) for left, right in zip(before, after, strict=True)]
    totals = [format_seconds(sum(row.seconds for row in way)) for way in (before, after)]
    rows.append(("total", "", totals[0], "", "", totals[1], ""))
    header = ("stage", "before", "time", "calls", "after", "time", "calls")
    return columns(rows, header=header, right=range(1, len(header)))


def profile_tile(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    windows: int = WINDOWS,
    on_event: OnEvent | None = None,
    **typed: Any,
) -> TileProfile:
    """Where tiling your scenes spends its time, the plain way and this one: a real profile, with .prof files for snakeviz.

    Args:
        data: Band files or multi-band files in folders, a large image, or a table. Left out, what this workspace was made for.
        windows: How many windows to measure.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The stages of both ways with their seconds, and whether their tiles are equal.

    Example:
        >>> unchoke.profile_tile("scenes/", out="tiled", windows=4, tile_size=64).equal
        True
    """
    refuse_number("--windows", windows, example=str(WINDOWS))
    given = {"data": data, **typed}
    with (
        open_session(given, out=out, on_event=on_event, remembering=False) as session,
        # a name that the next command sweeps if this one is killed
        tempfile.TemporaryDirectory(
            dir=session.workspace.root, prefix=atomic.TEMPORARY_PREFIX, suffix=atomic.TEMPORARY_SUFFIX
        ) as scratch,
    ):
        workers = choose_workers(session)
        sampled, findings = _sample_windows(session, windows=windows, workers=workers)
        command = f"unchoke tile {shlex.join(typed_options(given))}{out_option(session.workspace.root)}"
        return _measure(session, sampled, findings, Path(scratch), threads=workers, command=command)


Sample = list[tuple[TileSpec, TileStrip]]


def _sample_windows(session: Session, *, windows: int, workers: int) -> tuple[Sample, list[Finding]]:
    """Strips from the middle of a few scenes, spread over the list of them, and the findings on the way.

    No window is skipped as empty, so that both ways make the same ones.
    """
    with closing(HandlePool()) as pool:
        facts, findings = open_for_tiles(session, pool=pool, threads=workers)
        count = min(windows, _MOST_SCENES, len(facts))
        facts = [facts[number * len(facts) // count] for number in range(count)]
        tile_px, masks = choose_tile_px(session, facts), choose_masks(session, facts)
        specs, findings = plan_specs(session, facts, findings, masks, tile_px=tile_px, pool=pool, threads=workers)
    specs = [replace(spec, folder=spec.facts.scene_id, min_valid=0.0) for spec in specs]
    share = -(-windows // len(specs))
    return [(spec, strip) for spec in specs for strip in take_strips(spec, share, workers=workers)], findings


def take_strips(spec: TileSpec, windows: int, *, workers: int = 1) -> list[TileStrip]:
    """Strips from the middle of a scene, with so many windows in all (fewer where it has no more), evenly for all workers.

    From the middle, because the rims of a scene are often empty, which any way of tiling is quick at.
    """
    strips = plan_strips(spec.facts, spec)
    needed = -(-windows // max(len(strip.windows) for strip in strips))
    count = min(len(strips), -(-needed // workers) * workers)
    first = (len(strips) - count) // 2
    taken: list[TileStrip] = []
    for place, strip in enumerate(strips[first : first + count]):
        left = windows - sum(len(one.windows) for one in taken)
        if chosen := strip.windows[: -(-left // (count - place))]:
            taken.append(replace(strip, windows=chosen, box=reading_box(chosen, spec.facts.grid)))
    return taken


def _measure(
    session: Session, sample: Sample, findings: list[Finding], scratch: Path, *, threads: int, command: str
) -> TileProfile:
    files = {way: session.workspace.logs / "profiler" / f"tile_{way}.prof" for way in ("before", "after")}

    def plainly() -> list[StripResult]:
        results = []
        for spec, strip in sample:
            for window in strip.windows:
                alone = replace(strip, windows=(window,), box=reading_box([window], spec.facts.grid))
                with closing(HandlePool()) as pool:
                    results.append(run_strip(alone, replace(spec, compress="zlib"), root=scratch / "before", pool=pool))
        return results

    def by_strips(threads: int = 1) -> list[StripResult]:
        """Strip by strip, from files that are not open yet."""
        shared, results = SharedBlocks(), []
        with closing(HandlePool()) as pool:

            def body(task: tuple[TileSpec, TileStrip]) -> StripResult:
                return run_strip(task[1], task[0], root=scratch / "after", pool=pool, shared=shared)

            for outcome in InProcessEngine(threads).map_unordered(body, sample):
                if outcome.error is not None:
                    raise outcome.error
                results.append(cast("StripResult", outcome.value))
        return results

    def profiled(way: str, body: Callable[[], list[StripResult]]) -> tuple[float, list[StageRow]]:
        """Seconds and stages, on the clock after a turn under cProfile, whose .prof file snakeviz reads."""
        profile = cProfile.Profile()
        profile.runcall(body)
        profile.create_stats()
        stats = profile.stats
        atomic.write_with(files[way], lambda target: marshal.dump(stats, target))
        started_s = time.perf_counter()
        results = body()
        wall_s = time.perf_counter() - started_s
        return wall_s, _stage_rows(results, wall_s)

    with session.stage("after", "as `unchoke tile` does it"):
        by_strips()  # once for nothing: neither way is to pay for a disk that the other one warmed up
        one_thread_s, after = profiled("after", by_strips)
        started_s = time.perf_counter()
        by_strips(threads)
        after_s = time.perf_counter() - started_s
    with session.stage("before", "the plain serial way"):
        before_s, before = profiled("before", plainly)
    plain = sorted(Path(one.path) for one in listing.walk(scratch / "before"))
    ours = [scratch / "after" / file.relative_to(scratch / "before") for file in plain]
    spec = sample[0][0]
    return TileProfile(
        workspace=session.workspace.root,
        windows=len(plain),
        tile_px=spec.size_px,
        scenes=list(dict.fromkeys(spec.facts.scene_id for spec, _ in sample)),
        threads=threads,
        before=before,
        after=after,
        seconds={"before": before_s, "after": after_s, "after_one_thread": one_thread_s},
        size_ratio=sum(map(os.path.getsize, ours)) / max(1, sum(map(os.path.getsize, plain))),
        equal=all(map(_equal, plain, ours)),
        files=files,
        findings=rank([*findings, *diagnose_tiling(before, after, windows=len(plain), spec=spec, command=command)]),
        choices=session.choices,
        next_command=command,
    )


def _stage_rows(results: Sequence[StripResult], wall_s: float) -> list[StageRow]:
    """One row for each stage and one for the time between them; shares add up to 1."""
    seconds = {stage: sum(one.seconds[stage] for one in results) for stage in STAGES}
    seconds[OTHER] = max(1e-9, wall_s - sum(seconds.values()))
    total_s, calls = sum(seconds.values()), {stage: sum(one.calls[stage] for one in results) for stage in STAGES}
    return [StageRow(stage, took_s, took_s / total_s, calls.get(stage, 0)) for stage, took_s in seconds.items()]


def diagnose_tiling(
    before: Sequence[StageRow], after: Sequence[StageRow], *, windows: int, spec: TileSpec, command: str
) -> list[Finding]:
    """What the plain way wastes, the stage with most to gain first; then what takes most of the time that is left."""
    pairs = [pair for pair in zip(before, after, strict=True) if pair[0].share >= _MENTIONED_SHARE]
    pairs = [(row, then) for row, then in pairs if row.seconds >= _CLEARLY * then.seconds]
    total_s, found = sum(row.seconds for row in before), []
    for row, then in sorted(pairs, key=lambda pair: pair[1].seconds - pair[0].seconds):
        code, what, fix = _WASTED[row.stage]
        calls = f": {row.calls:,} calls for {format_count(windows, 'window')}" if row.calls else ""
        whole = total_s / max(1e-9, total_s - row.seconds + then.seconds)
        gain = f"{row.seconds / max(1e-9, then.seconds):.1f}× for this stage, {whole:.1f}× for the whole, in one thread"
        evidence: dict[str, float | int] = {}
        for way, one in (("before", row), ("after", then)):
            evidence |= {f"{way}_s": round(one.seconds, 4), f"{way}_share": round(one.share, 4), f"{way}_calls": one.calls}
        message = f"{100 * row.share:.0f} % of the plain way's time is {what}{calls}"
        found.append(
            Finding(code, message, "warning", stage=row.stage, evidence=evidence, expected_gain=gain, fix=fix, command=command)
        )
    largest = max(after, key=lambda row: row.seconds)
    if largest.share >= _MOST_OF_IT and largest.stage != OTHER:
        packs = largest.stage == "write" and spec.compress != "none"
        each = format_seconds(largest.seconds / max(1, windows))
        what = "compressing" if packs else largest.stage
        found.append(
            Finding(
                code="what-is-left",
                message=f"what is left is {what}: {100 * largest.share:.0f} % of this way's time, {each} a window",
                severity="info",
                stage=largest.stage,
                evidence={"after_s": round(largest.seconds, 4), "after_share": round(largest.share, 4)},
                expected_gain=f"at most {1 / max(0.01, 1 - largest.share):.1f}× in one thread" if packs else "",
                fix=_LIGHTER[spec.store][0] if packs else "",
                command=f"{command} {_LIGHTER[spec.store][1]}" if packs else "",
            )
        )
    return found


def _equal(plain: Path, ours: Path) -> bool:
    """Whether both files hold the same bands and mask, bit for bit."""
    with np.load(plain) as before, np.load(ours) as after:
        return all(name in after and np.array_equal(before[name], after[name]) for name in before.files)
