"""`unchoke claims run`: commonly reported gains, each measured on this machine and set beside what is reported.

In: names of claims and the minutes they may take together. Out: a verdict on each, with the interval, whether both ways give the
same results, and why. Data is made in a temporary folder and removed; nothing is downloaded. What does not apply here says so,
and so does what there was no time for. `list_claims` gives the list alone.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unchoke import __version__
from unchoke.core import atomic
from unchoke.core.errors import UnchokeError, UsageError
from unchoke.core.events import OnEvent, StageDone, StageStarted, ignore
from unchoke.machine.machine_facts import MachineFacts
from unchoke.reports.json import SCHEMA, to_jsonable
from unchoke.tuning.claims.claim import ACCELERATOR, Claim, DoesNotApply, Outcome, judge
from unchoke.tuning.claims.claim_bench import Bench, Sizes
from unchoke.tuning.claims.claims_text import render_claims
from unchoke.tuning.claims.registry import choose_claims

MINUTES = 4.0
FILE_NAME = "claims.json"
_PACKAGES = ("torch", "timm", "numpy", "pillow", "simplejpeg", "opencv-python-headless", "opencv-python", "rasterio", "isal")
_EXTRAS = {"rasterio": "geo"}


@dataclass(frozen=True)
class ClaimsResult:
    """What came of every claim that was asked for, on which machine, with which versions."""

    outcomes: list[Outcome]
    machine: dict[str, Any]
    versions: dict[str, str]
    minutes: float
    seconds: float
    date: str
    interrupted: bool = False
    file: Path | None = None

    @property
    def exit_code(self) -> int:
        return 130 if self.interrupted else 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "claims": [outcome.to_dict() for outcome in self.outcomes],
            "machine": self.machine,
            "versions": self.versions,
            "minutes": self.minutes,
            "seconds": self.seconds,
            "date": self.date,
            "interrupted": self.interrupted,
            "file": None if self.file is None else str(self.file),
        }

    def to_text(self) -> str:
        return render_claims(self.to_dict())


def list_claims(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The claims of these names (all without): what is reported, and what is timed."""
    return [claim.to_dict() for claim in choose_claims(names)]


def claims_run(
    names: Sequence[str] = (),
    *,
    minutes: float = MINUTES,
    out: Path | str | None = None,
    on_event: OnEvent = ignore,
    sizes: Sizes | None = None,
) -> ClaimsResult:
    """Measure the claims of these names (all without), in about `minutes` together; with `out`, keep claims.json there.

    Ctrl-C ends the measuring: what was measured by then is the result.
    """
    claims = choose_claims(names)
    _refuse_no_time(minutes)
    with tempfile.TemporaryDirectory(prefix=atomic.TEMPORARY_PREFIX, suffix=atomic.TEMPORARY_SUFFIX) as folder:
        run = ClaimsRun(Bench(Path(folder), sizes=sizes), claims, minutes=minutes, on_event=on_event)
        result = run.result()
    return result if out is None else _kept(result, Path(out))


def _refuse_no_time(minutes: float) -> None:
    if not minutes > 0:
        raise UsageError(f"--minutes {minutes:g} leaves no time", why="measuring takes a while", try_=f"--minutes {MINUTES:g}")


def _kept(result: ClaimsResult, folder: Path) -> ClaimsResult:
    kept = replace(result, file=folder / FILE_NAME)
    atomic.write_json(folder / FILE_NAME, to_jsonable({"schema": SCHEMA, **kept.to_dict()}))
    return kept


@dataclass
class ClaimsRun:
    """One claim after the other, within the time."""

    bench: Bench
    claims: list[Claim]
    minutes: float
    on_event: OnEvent
    interrupted: bool = False
    outcomes: list[Outcome] = field(default_factory=list)

    def result(self) -> ClaimsResult:
        started_s = time.monotonic()
        try:
            self._measure_all(until_s=started_s + 60 * self.minutes)
        except KeyboardInterrupt:
            self.interrupted = True
            left = self.claims[len(self.outcomes) :]
            self.outcomes += [Outcome(claim, "not measured", "stopped on request") for claim in left]
        return ClaimsResult(
            outcomes=self.outcomes,
            machine=_machine(self.bench.facts),
            versions=_versions(),
            minutes=self.minutes,
            seconds=time.monotonic() - started_s,
            date=time.strftime("%Y-%m-%d"),
            interrupted=self.interrupted,
        )

    def _measure_all(self, *, until_s: float) -> None:
        waiting = [claim for claim in self.claims if not missing(claim, self.bench.facts)]
        for claim in self.claims:
            reason = missing(claim, self.bench.facts)
            if reason:
                self.outcomes.append(Outcome(claim, "does not apply", reason))
                continue
            self.outcomes.append(self._measure(claim, waiting, until_s=until_s))
            waiting.remove(claim)

    def _measure(self, claim: Claim, waiting: Sequence[Claim], *, until_s: float) -> Outcome:
        """Measure it within its share of what is left; a claim that would not fit is left out with a word."""
        started_s = time.monotonic()
        left_s = until_s - started_s
        if left_s < claim.least_s:
            left = f"{max(0.0, left_s):.0f} s were left and it takes about {claim.least_s:.0f} s"
            return Outcome(claim, "not measured", f"{left}: ask for more --minutes, or for it alone")
        share_s = left_s * claim.least_s / sum(one.least_s for one in waiting)
        self.bench.until_s = started_s + max(claim.least_s, share_s)
        self.on_event(StageStarted(claim.name, claim.title))
        outcome = replace(self._judged(claim), seconds=time.monotonic() - started_s)
        self.on_event(StageDone(claim.name, outcome.seconds, outcome.verdict))
        return outcome

    def _judged(self, claim: Claim) -> Outcome:
        try:
            measured = claim.measure(self.bench)
        except DoesNotApply as reason:
            return Outcome(claim, "does not apply", str(reason))
        except UnchokeError as error:
            return Outcome(claim, "not measured", f"{error.what}: {error.why}")
        verdict = judge(claim.ratios, low=measured.low, high=measured.high)
        return Outcome(claim, verdict, measured.why, measured)


def missing(claim: Claim, facts: MachineFacts) -> str:
    """Why a claim cannot be measured on this machine; empty if it can."""
    if ACCELERATOR in claim.needs and not facts.accelerators:
        return "torch sees no accelerator on this machine"
    absent = [package for package in claim.needs if package != ACCELERATOR and find_spec(package) is None]
    if not absent:
        return ""
    extra = f": pip install 'unchoke[{_EXTRAS[absent[0]]}]'" if absent[0] in _EXTRAS else ""
    return f"it needs the package {absent[0]!r}, which is not installed{extra}"


def _machine(facts: MachineFacts) -> dict[str, Any]:
    return {
        "system": f"{facts.system} {facts.system_version}",
        "processor": facts.cpu_name,
        "cores": facts.cores,
        "memory_bytes": facts.memory_bytes,
        "accelerators": [f"{card.kind}:{card.index} {card.name}" for card in facts.accelerators],
    }


def _versions() -> dict[str, str]:
    found = {"unchoke": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
