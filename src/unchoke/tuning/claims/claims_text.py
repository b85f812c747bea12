"""Claims and what was measured of them as plain text. Returns text, prints nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unchoke.core.units import format_count, format_seconds
from unchoke.reports.layout import columns, visible, wrap

_HEADER = ("claim", "reported", "measured", "95 % interval", "equal", "verdict")
_INDENT = " " * 4
_EQUAL = {True: "yes", False: "NO", None: "-"}
_NOTE = (
    "Ratios are the plain way's time over the other's, in alternating runs: 2× is twice as fast. Percentages are read as "
    "throughput: 20 % faster is 1.20×. A single reported figure counts as reached within a quarter of its gain."
)


def render_claims(record: Mapping[str, Any]) -> str:
    """The table, a reason for each line of it, the machine, and what to do next."""
    claims = record["claims"]
    parts = [
        columns([_row(claim) for claim in claims], header=_HEADER, right=(2,)),
        "\n".join(_reason(claim) for claim in claims),
        wrap(_NOTE, indent=""),
        _tail(record),
    ]
    return "\n\n".join(parts)


def render_claim_list(claims: Iterable[Mapping[str, Any]]) -> str:
    """What is reported, and what would be timed; one paragraph a claim."""
    blocks = ["\n".join([_heading(claim), wrap(f"timed: {claim['timed']}", indent=_INDENT)]) for claim in claims]
    return "\n\n".join([*blocks, "next      unchoke claims run, or unchoke claims run NAME"])


def reported_text(claim: Mapping[str, Any]) -> str:
    """``20–40 % faster training (1.20–1.40×)``."""
    low, high = claim["reported_low"], claim["reported_high"]
    return f"{claim['reported']} ({_ratio(low)}–{_ratio(high)}×)" if high is not None else str(claim["reported"])


def _heading(claim: Mapping[str, Any]) -> str:
    needs = f"  [needs {', '.join(claim['needs'])}]" if claim["needs"] else ""
    return visible(f"{claim['name']}: {claim['title']}: {reported_text(claim)}{needs}")


def _row(claim: Mapping[str, Any]) -> Sequence[str]:
    measured = claim["measured"]
    if measured is None:
        return claim["name"], reported_text(claim), "-", "-", "-", claim["verdict"]
    return (
        claim["name"],
        reported_text(claim),
        f"{_ratio(measured['ratio'])}×",
        _interval(measured),
        _EQUAL[measured["equal"]],
        claim["verdict"],
    )


def _interval(measured: Mapping[str, Any]) -> str:
    """``1.04–1.08×``; a single pair of runs has none."""
    return f"{_ratio(measured['low'])}–{_ratio(measured['high'])}×" if measured["pairs"] > 1 else "one pair"


def _reason(claim: Mapping[str, Any]) -> str:
    measured = claim["measured"]
    equal = "" if measured is None else f" ({measured['equal_figure']}; {format_count(measured['pairs'], 'pair')})"
    return f"{visible(claim['name'])}\n{wrap(claim['reason'] + equal, indent=_INDENT)}"


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
