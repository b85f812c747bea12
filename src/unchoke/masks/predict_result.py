"""What `segment predict` answers: plain values that can be read, printed, or sent as JSON."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.findings import Finding
from unchoke.core.units import format_seconds

_SHOWN = 20


@dataclass(frozen=True)
class SegmentPredictResult:
    """The masks in the order of the scenes; `findings` name the scenes that could not be read."""

    run: str
    folder: Path
    masks: list[dict[str, Any]]
    findings: list[Finding]
    choices: list[Choice]
    timings: dict[str, float]
    patches: int
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "folder": str(self.folder),
            "masks": self.masks,
            "findings": [finding.to_dict() for finding in self.findings],
            "choices": [choice.to_dict() for choice in self.choices],
            "timings": self.timings,
            "patches": self.patches,
            "memory": self.memory,
        }

    def to_text(self) -> str:
        lines = [_mask_line(mask) for mask in self.masks[:_SHOWN]]
        if len(self.masks) > _SHOWN:
            lines.append(f"… and {len(self.masks) - _SHOWN} more: --json gives them all")
        failed = [finding for finding in self.findings if finding.severity == "error"]
        lines += [f"failed    {finding.message}" for finding in failed]
        if self.masks and all(mask["skipped"] for mask in self.masks):
            lines.append("done      the same run and scenes gave these masks before: nothing was run")
        lines.append(f"masks     {self.folder}")
        if self.masks:
            lines.append(f"next      {_next_command(Path(self.masks[0]['classes']))}")
        return "\n".join(lines)


def _mask_line(mask: dict[str, Any]) -> str:
    shares = ", ".join(f"{name} {100 * share:.1f} %" for name, share in mask["shares"].items())
    how = "done before" if mask["skipped"] else format_seconds(mask["seconds"])
    return f"mask      {mask['scene']}  {mask['width']:,}×{mask['height']:,} px  {shares}  ({how})"


def _next_command(classes: Path) -> str:
    if classes.suffix == ".png":
        return f"open {shlex.quote(str(classes))} in any viewer; each colour is a class"
    return f"gdalinfo {shlex.quote(str(classes))}, or open it in QGIS: it has its place on the map"
