"""`unchoke claims run`: commonly reported gains, each measured on this machine and set beside what is reported.

In: names of claims and the minutes they may take together. Out: a verdict on each, with the interval, whether both ways give the
same results, and why. Data is made in a temporary folder and removed; nothing is downloaded. What does not apply here says so,
and so does what there was no time for. `list_claims` gives the list alone. Both have a plain-text form; nothing is printed.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unchoke import __version__
from unchoke.core import atomic
from unchoke.core.errors import UnchokeError
from unchoke.core.events import OnEvent, StageDone, StageStarted, ignore
from unchoke.core.setting_values import refuse_number
from unchoke.core.temporary_folders import scratch_folder
from unchoke.core.units import format_count, format_seconds
from unchoke.machine.machine_facts import MachineFacts
from unchoke.runs.report.json import SCHEMA, to_jsonable
from unchoke.runs.report.layout import columns, visible, wrap
from unchoke.tuning.claims.claim import ACCELERATOR, Claim, ClaimOutcome, DoesNotApply, judge
from unchoke.tuning.claims.claim_bench import Bench, Sizes
from unchoke.tuning.claims.registry import choose_claims

MINUTES = 4.0
FILE_NAME = "claims.json"
_PACKAGES = ("torch", "timm", "numpy", "pillow", "simplejpeg", "opencv-python-headless", "opencv-python", "rasterio", "isal")
_EXTRAS = {"rasterio": "geo"}
_HEADER = ("claim", "reported", "measured", "95 % interval", "equal", "verdict")
_INDENT = " " * 4
_EQUAL = {True: "yes", False: "NO", None: "-"}
_NOTE = (
    "Ratios are the plain way's time over the other's, in alternating runs: 2× is twice as fast. Percentages are read as "
    "throughput: 20 % faster is 1.20×. A single reported figure counts as reached within a quarter of its gain."
)


@dataclass(frozen=True)
class ClaimsResult:
    """What came of every claim that was asked for, on which machine, with which versions."""

    outcomes: list[ClaimOutcome]
    """What came of each claim, in order."""
    machine: dict[str, Any]
    """The facts of the machine."""
    versions: dict[str, str]
    """Versions of what was used."""
    minutes: float
    """How long it was allowed to take."""
    seconds: float
    """How long it took."""
    date: str
    """When it was measured."""
    interrupted: bool = False
    """Whether it was stopped before all were measured."""
    file: Path | None = None
    """Where it was kept, if anywhere."""

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
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
    refuse_number("--minutes", minutes, example=f"{MINUTES:g}")
    with scratch_folder("claims") as folder:
        run = ClaimsRun(Bench(folder, sizes=sizes), claims, minutes=minutes, on_event=on_event)
        result = run.result()
    if out is None:
        return result
    result = replace(result, file=Path(out) / FILE_NAME)
    atomic.write_json(Path(out) / FILE_NAME, to_jsonable({"schema": SCHEMA, **result.to_dict()}))
    return result


@dataclass
class ClaimsRun:
    """One claim after the other, within the time."""

    bench: Bench
    claims: list[Claim]
    minutes: float
    on_event: OnEvent
    interrupted: bool = False
    outcomes: list[ClaimOutcome] = field(default_factory=list)

    def result(self) -> ClaimsResult:
        started_s = time.monotonic()
        try:
            self._measure_all(until_s=started_s + 60 * self.minutes)
        except KeyboardInterrupt:
            self.interrupted = True
            left = self.claims[len(self.outcomes) :]
            self.outcomes += [ClaimOutcome(claim, "not measured", "stopped on request") for claim in left]
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
                self.outcomes.append(ClaimOutcome(claim, "does not apply", reason))
                continue
            self.outcomes.append(self._measure(claim, waiting, until_s=until_s))
            waiting.remove(claim)

    def _measure(self, claim: Claim, waiting: Sequence[Claim], *, until_s: float) -> ClaimOutcome:
        """Measure it within its share of what is left; one that would not fit is left out, and says so."""
        started_s = time.monotonic()
        left_s = until_s - started_s
        if left_s < claim.least_s:
            left = f"{max(0.0, left_s):.0f} s were left and it takes about {claim.least_s:.0f} s"
            return ClaimOutcome(claim, "not measured", f"{left}: ask for more --minutes, or for it alone")
        share_s = left_s * claim.least_s / sum(one.least_s for one in waiting)
        self.bench.until_s = started_s + max(claim.least_s, share_s)
        self.on_event(StageStarted(claim.name, claim.title))
        outcome = replace(self._judged(claim), seconds=time.monotonic() - started_s)
        self.on_event(StageDone(claim.name, outcome.seconds, outcome.verdict))
        return outcome

    def _judged(self, claim: Claim) -> ClaimOutcome:
        try:
            measured = claim.measure(self.bench)
        except DoesNotApply as reason:
            return ClaimOutcome(claim, "does not apply", str(reason))
        except UnchokeError as error:
            return ClaimOutcome(claim, "not measured", f"{error.what}: {error.why}")
        verdict = judge(claim.ratios, low=measured.low, high=measured.high)
        return ClaimOutcome(claim, verdict, measured.why, measured)


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


def render_claims(record: Mapping[str, Any]) -> str:
    """The table, a reason for each line of it, the machine, and what to do next."""
    claims = record["claims"]
    parts = [
        columns([_row(claim) for claim in claims], header=_HEADER, right=(2,)),
        "\n".join(
            f"{visible(claim['name'])}\n{wrap(claim['reason'] + _equal_text(claim['measured']), indent=_INDENT)}"
            for claim in claims
        ),
        wrap(_NOTE, indent=""),
        _tail(record),
    ]
    return "\n\n".join(parts)


def render_claim_list(claims: Iterable[Mapping[str, Any]]) -> str:
    """What is reported, and what would be timed; one paragraph a claim."""
    blocks = []
    for claim in claims:
        needs = f"  [needs {', '.join(claim['needs'])}]" if claim["needs"] else ""
        heading = visible(f"{claim['name']}: {claim['title']}: {reported_text(claim)}{needs}")
        blocks.append(heading + "\n" + wrap(f"timed: {claim['timed']}", indent=_INDENT))
    return "\n\n".join([*blocks, "next      unchoke claims run, or unchoke claims run NAME"])


def reported_text(claim: Mapping[str, Any]) -> str:
    """``20–40 % faster training (1.20–1.40×)``."""
    low, high = claim["reported_low"], claim["reported_high"]
    return f"{claim['reported']} ({_ratio(low)}–{_ratio(high)}×)" if high is not None else str(claim["reported"])


def _row(claim: Mapping[str, Any]) -> Sequence[str]:
    measured = claim["measured"]
    if measured is None:
        return claim["name"], reported_text(claim), "-", "-", "-", claim["verdict"]
    interval = f"{_ratio(measured['low'])}–{_ratio(measured['high'])}×" if measured["pairs"] > 1 else "one pair"
    return (
        claim["name"],
        reported_text(claim),
        f"{_ratio(measured['ratio'])}×",
        interval,
        _EQUAL[measured["equal"]],
        claim["verdict"],
    )


def _equal_text(measured: Mapping[str, Any] | None) -> str:
    return "" if measured is None else f" ({measured['equal_figure']}; {format_count(measured['pairs'], 'pair')})"


def _ratio(ratio: float) -> str:
    """Three digits, as many as such measurements are good for."""
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.1f}" if ratio < 99.95 else f"{ratio:,.0f}"


def _tail(record: Mapping[str, Any]) -> str:
    counts = Counter(claim["verdict"] for claim in record["claims"])
    machine, versions = record["machine"], record["versions"]
    devices = ", ".join([machine["processor"], format_count(machine["cores"], "core"), *machine["accelerators"]])
    lines = [
        ("verdicts", ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())),
        ("machine", devices),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("took", format_seconds(record["seconds"]) + (", stopped on request" if record["interrupted"] else "")),
    ]
    if record["file"]:
        lines.append(("kept", record["file"]))
    lines.append(("next", "unchoke tune DATA: which of them hold for your own model and data"))
    return "\n".join(f"{word:<10}{visible(text)}" for word, text in lines)
