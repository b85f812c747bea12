"""What `fit`, `train` and `extract` answer: plain values that can be read, printed, or sent as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core.choices import Choice
from unchoke.core.findings import Finding
from unchoke.core.record import Interval, RunRecord
from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.core.workspace import out_option
from unchoke.runs.report.text import render_choices, render_fit_result, render_profile

if TYPE_CHECKING:
    from unchoke.training.load_model import LoadedModel
    from unchoke.training.predict import Predictions


@dataclass(frozen=True)
class FitResult:
    """A run of `fit`, `train` or `segment_train`."""

    run_record: RunRecord = field(repr=False)
    """All there is to know of the run, typed."""
    workspace: Path
    """The folder the run belongs to."""
    already_done: bool = False
    """Whether the same data and settings were trained before, and nothing had to be run."""

    @property
    def run(self) -> str:
        """The run's name, `exp_1` for instance."""
        return self.run_record.run

    def __repr__(self) -> str:
        from unchoke.runs.report.summary import headline

        return f"{headline(self.run_record)}\nreport  {self.report}"

    def _repr_html_(self) -> str:
        """The first section of the report, for notebooks."""
        from unchoke.runs.report.html import result_parts

        parts = result_parts(self.run_record) if "run_record" in vars(self) else None
        if parts is None:
            return f"<pre>{escape(repr(self))}</pre>"
        lines = "".join(f"<p>{escape(sentence)}</p>" for sentence in parts["sentences"])
        rows = [parts["table"].header, *parts["table"].rows] if parts["table"] else []
        table = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
        figure = f"<b style='font-size:1.6em'>{escape(parts['figure'])}</b> {escape(parts['caption'])}"
        return f"<div>{figure}{lines}<table>{table}</table><p>report: <code>{escape(str(self.report))}</code></p></div>"

    @property
    def metrics(self) -> dict[str, dict[str, float | None]]:
        """Every metric, by split and name: ``result.metrics["test"]["accuracy"]``."""
        found: dict[str, dict[str, float | None]] = plain_metrics(self.run_record.metrics)["metrics"]
        return found

    @cached_property
    def model(self) -> LoadedModel:
        """The run's model as a torch module, from pixels to answers: what `load_model` gives."""
        from unchoke.training.load_model import load_model

        return load_model(self.run, out=self.workspace)

    def predict(self, images: str | Path | Sequence[str | Path], **options: Any) -> Predictions:
        """New photos through this run, as `unchoke.predict` has it, with the same options."""
        from unchoke.training.predict import predict

        return predict(self.run, images, out=self.workspace, **options)

    @property
    def record(self) -> dict[str, Any]:
        """The run's record in plain values, as in `record.json`."""
        return self.run_record.to_dict()

    @property
    def folder(self) -> Path:
        """Where the run's files lie."""
        return self.workspace / "experiments" / self.run

    @property
    def report(self) -> Path:
        """The run's page."""
        return self.folder / "report.html"

    def to_dict(self) -> dict[str, Any]:
        record, plain = self.run_record, self.record
        return {
            "run": self.run,
            "workspace": str(self.workspace),
            "report": str(self.report),
            "already_done": self.already_done,
            **plain_metrics(record.metrics),
            "baseline": plain.get("baseline"),
            "learning_curve": plain.get("learning_curve"),
            "ladder": plain.get("ladder", []),
            "timings": record.timings,
            "timeline": plain.get("timeline", {}),
            "chokes": plain.get("chokes", []),
            "profile": plain.get("profile"),
            "images_per_s": record.images_per_s,
            "memory": plain.get("memory", {}),
            "num_quarantined": len(record.quarantine or []),
            "num_unscored": len(record.unscored or []),
            "group_gap": plain.get("group_gap"),
            "choices": plain.get("choices", []),
        }

    def to_text(self) -> str:
        inputs = " --inputs TABLE.csv" if self.run_record.data.inputs_summary else ""
        return self.text_with(f"unchoke predict {self.run} PHOTOS{inputs}{out_option(self.workspace)}")

    def text_with(self, next_command: str) -> str:
        """The result in words, ending with what to type next; before it, what was profiled on the way."""
        done = f"{self.run} is done: the same data and settings gave this\n\n" if self.already_done else ""
        profile = None if self.already_done else self.run_record.profile
        profiled = f"{render_profile(profile, root=self.workspace)}\n\n" if profile else ""
        return done + profiled + render_fit_result(self.run_record, report=str(self.report), next_command=next_command)


def plain_metrics(metrics: Mapping[str, Mapping[str, Interval]]) -> dict[str, Any]:
    """Values and intervals by split and name, as `--json` has them."""
    return {
        "metrics": {split: {name: one.value for name, one in found.items()} for split, found in metrics.items()},
        "intervals": {split: {name: [one.low, one.high] for name, one in found.items()} for split, found in metrics.items()},
    }


@dataclass(frozen=True, kw_only=True)
class FollowerResult(FitResult):
    """The result of a process that only took part in a training: the leading process reports the run."""

    run_record: RunRecord = field(init=False, repr=False, compare=False)
    rank: int
    """The number of this process among all."""

    def __repr__(self) -> str:
        return self.to_text()

    def to_dict(self) -> dict[str, Any]:
        return {"rank": self.rank}

    def to_text(self) -> str:
        return f"process {self.rank} took part"


@dataclass(frozen=True)
class ExtractResult:
    """What `extract` did, or (`dry_run`) would do."""

    num_images: int
    """How many images were run."""
    num_jobs: int
    """In how many jobs."""
    num_jobs_left: int
    """How many jobs are still to be run."""
    num_failed: int
    """How many images could not be read."""
    fingerprint: str
    """What tells features made in this way from others."""
    folder: str
    """Where the features lie."""
    workspace: Path
    """The folder they belong to."""
    seconds: float
    """How long it took."""
    dry_run: bool = False
    """Whether nothing was run."""
    choices: list[Choice] = field(default_factory=list)
    """What was chosen, with reasons."""

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "choices": [c.to_dict() for c in self.choices],
        }

    def to_text(self) -> str:
        verb = "would be run" if self.dry_run else "run"
        rate = (
            f", {self.num_images / self.seconds:,.0f} images/s" if self.num_images and self.seconds and not self.dry_run else ""
        )
        images = format_count(self.num_images, "image")
        lines = [
            f"{format_count(self.num_jobs, 'job')} {verb} ({images}, {format_seconds(self.seconds)}{rate})",
            f"{format_count(self.num_jobs_left, 'job')} left, {format_count(self.num_failed, 'image')} set aside",
            f"features  {self.folder}",
            f"next      unchoke train{out_option(self.workspace)}",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Rehearsal(FitResult):
    """What `fit` with `dry_run` found out without doing it: there is no run, and no record."""

    run_record: RunRecord = field(init=False, repr=False, compare=False)
    """There is none: nothing was run."""
    num_samples: int
    """How many samples the data has."""
    num_quarantined: int
    """How many of them cannot be read."""
    num_jobs: int
    """In how many jobs the rest would be extracted; none without a frozen part."""
    disk_bytes: int
    """What that would take on disk."""
    choices: list[Choice]
    """What was chosen, with reasons."""
    findings: list[Finding]
    """What is wrong with the data, short of stopping it."""

    def __repr__(self) -> str:
        return self.to_text()

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("num_samples", "num_quarantined", "num_jobs", "disk_bytes")}
        return {
            "dry_run": True,
            **plain,
            "choices": [choice.to_dict() for choice in self.choices],
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def to_text(self) -> str:
        images = format_count(self.num_samples - self.num_quarantined, "image")
        how = f"extract {images} in at most {format_count(self.num_jobs, 'job')}" if self.num_jobs else f"decode {images}"
        last = f"would {how} ({format_bytes(self.disk_bytes)} on disk), then train"
        return "\n".join([render_choices(self.choices), "", last, "nothing was run"])
