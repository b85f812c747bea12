"""What was tried and what came out: finding runs, listing them, comparing them, writing their report again."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from unchoke.core import listing
from unchoke.core.checksums import damaged
from unchoke.core.errors import DamagedFile, UsageError, list_some
from unchoke.core.metrics import LABELS, find_metric
from unchoke.core.record import RunRecord, StoredRun
from unchoke.core.workspace import DEFAULT_ROOT, Workspace, out_option, stays_below
from unchoke.machine.system_errors import NOT_ALLOWED
from unchoke.runs.experiment_store import ExperimentStore, divided_alike, judged_alike
from unchoke.runs.report import summary
from unchoke.runs.report.html import save_report
from unchoke.runs.report.json import load_record
from unchoke.runs.run_files import RECORD, is_of

_ENDINGS = {"running": "is running", "stopped": "was stopped", "interrupted": "was interrupted", "failed": "failed"}
"""How it stands with a run that has no record yet."""


@dataclass(frozen=True)
class FoundRun:
    """A run's folder; `workspace` is None for one that was exported."""

    folder: Path
    workspace: Workspace | None
    model: str = "best_head.pt"
    """The file of the trained weights: that of the run, or of one model of a blend."""

    @cached_property
    def record(self) -> RunRecord:
        return load_record(self.folder / RECORD)

    @property
    def head_file(self) -> Path:
        """The trained weights: of a head, or of a network."""
        file = self.folder / "checkpoints" / self.model
        if not stays_below(self.model):
            raise damaged(file, f"{self.model!r} is no name of a model")
        if not file.exists():
            raise DamagedFile(
                f"{file} is gone",
                code="file-gone",
                why=f"it holds what {self.record.run} learnt",
                try_=f"`{self.command}` makes again what is missing" if self.workspace else "export the run again",
            )
        return file

    @property
    def command(self) -> str:
        """What to type to have the run made, in the workspace it is in."""
        return self.record.command + (out_option(self.workspace.root) if self.workspace else "")

    def refuse_masks(self, command: str) -> None:
        """For commands about classes and values: a run that draws masks has its own."""
        if self.record.draws_masks:
            raise UsageError(
                f"{self.record.run} draws masks, and `{command}` is for classes and values",
                code="run-draws-masks",
                why="it was made by `unchoke segment train`",
                try_=f"unchoke segment predict {self.record.run} SCENES, or `unchoke report` for its figures",
            )

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Of several labels: the probability from which on each counts as given; else nothing."""
        task = self.record.task
        return tuple(float(self.record.thresholds.get(name, 0.5)) for name in task.names if task.kind == LABELS)

    @property
    def is_blend(self) -> bool:
        """Whether several models answer together."""
        return bool(self.record.ladder)

    @property
    def trains_network(self) -> bool:
        """Whether more than heads on pooled features was trained."""
        return self.record.training is not None


def find_run(run: str | Path, *, out: Path | str | None) -> FoundRun:
    """`exp_3`, `3`, `latest` or `best` of a workspace, or the folder of a run, exported or not."""
    folder = Path(run)
    if (folder / RECORD).is_file():
        workspace = Workspace(folder.resolve().parent.parent)
        if workspace.experiments_file.exists():
            workspace.refuse_links()
        return _refuse_another(FoundRun(folder, workspace if workspace.experiments_file.exists() else None))
    workspace = _workspace(out)
    with ExperimentStore.open(workspace.experiments_file) as experiments:
        found = experiments.run(str(run))
    folder = workspace.run_folder(found.name)
    if not (folder / RECORD).is_file():
        ended = _ENDINGS.get(_status(found.status, workspace))
        raise UsageError(
            f"{found.name} has no result yet" if ended else f"the result of {found.name} is gone",
            code="no-result-yet",
            why=f"it {ended}: {folder / RECORD} is not written until training ends"
            if ended
            else f"there is no {folder / RECORD}",
            try_=(found.command or "unchoke fit DATA") + out_option(workspace.root),
        )
    return _refuse_another(FoundRun(folder, workspace))


def _refuse_another(found: FoundRun) -> FoundRun:
    """`found` as it is, unless the folder of one run in a workspace holds another; exported folders have any name."""
    if found.workspace is None or is_of(found.folder, found.record):
        return found
    name = found.folder.resolve().name
    with ExperimentStore.open(found.workspace.experiments_file) as experiments:
        commands = [row.command for row in experiments.runs() if row.name == name]
    if not commands:
        return found
    raise DamagedFile(
        f"{found.folder} holds {found.record.run}, not {name}",
        code="runs-exchanged",
        why="the files of one run were put in the place of another's",
        try_=f"`{commands[0]}{out_option(found.workspace.root)}` makes {name} again",
    )


def _status(recorded: str, workspace: Workspace) -> str:
    """What the database says of a run, or ``stopped`` for one that was running when its process ended, by whatever."""
    return "stopped" if recorded == "running" and not workspace.is_owned() else recorded


def _workspace(out: Path | str | None) -> Workspace:
    workspace = Workspace(Path(out) if out is not None else DEFAULT_ROOT)
    workspace.refuse_links()
    if workspace.experiments_file.exists():
        return workspace
    if folders := listing.names(workspace.experiments, prefix="exp_"):
        named = f"unchoke runs show {workspace.run_folder(folders[-1])}"
        raise UsageError(
            f"{workspace.experiments_file} is gone",
            code="database-gone",
            why=f"it lists the runs; the files of {list_some(folders)} are there",
            try_=f"put a copy of it in its place, or name a run by its folder: {named}",
        )
    raise UsageError(
        f"there are no runs in {workspace.root}",
        code="no-runs",
        why="nothing has been trained there",
        try_="unchoke fit DATA, or name the folder with --out",
    )


# -- the order of runs in a list ----------------------------------------------------------------------------------------------


_ORDERS: dict[str, Callable[[StoredRun], Any]] = {
    "run": lambda run: run.number,
    "status": lambda run: run.status,
    "started": lambda run: run.created_at,
    "encoder": lambda run: run.encoder,
    "cut": lambda run: summary.run_setup(run).cut,
    "head": lambda run: summary.run_setup(run).head,
    "epochs": lambda run: summary.run_setup(run).epochs,
    "result": lambda run: (metric := summary.leading_metric(run)) and (metric.name, _worse_later(metric.name, metric.value)),
    "time": summary.total_seconds,
}


def sort_runs(runs: Sequence[StoredRun], by: str) -> list[StoredRun]:
    """Sorted by a column of the list or by a metric (``accuracy``, ``val.log_loss``); a leading ``-`` turns the order round."""
    name = by.removeprefix("-")
    value: Callable[[StoredRun], Any] = _ORDERS.get(name) or _metric_order(runs, name)
    known = [run for run in runs if value(run) is not None]
    ordered = sorted(known, key=value, reverse=by.startswith("-"))
    return ordered + [run for run in runs if value(run) is None]


def _metric_order(runs: Sequence[StoredRun], name: str) -> Callable[[StoredRun], float | None]:
    """By a metric of one split, or of test where a run has it and else of val."""
    recorded = {f"{split}.{metric}" for run in runs for split, found in run.metrics.items() for metric in found}
    split, dot, rest = name.partition(".")
    splits, metric = ((split,), rest) if dot and split in summary.SPLITS else (summary.SPLITS, name)
    if not any(f"{one}.{metric}" in recorded for one in splits):
        metrics = sorted({one.partition(".")[2] for one in recorded})
        meant = difflib.get_close_matches(name, [*_ORDERS, *metrics], n=1) or ["result"]
        raise UsageError(
            f"runs cannot be sorted by {name!r}",
            code="unknown-order",
            why=f"there are {', '.join(_ORDERS)}, and the metrics {list_some(metrics, limit=8) if metrics else '(none yet)'}",
            try_=f"--sort {meant[0]}",
        )

    def value(run: StoredRun) -> float | None:
        found = [one.value for one in (run.metrics.get(split, {}).get(metric) for split in splits) if one is not None]
        return next((_worse_later(metric, one) for one in found if one is not None), None)

    return value


def _worse_later(metric: str, value: float) -> float:
    return -value if find_metric(metric).higher_is_better else value


# -- commands ----------------------------------------------------------------------------------------------------------------


def list_runs(*, out: str | Path | None = None, sort: str = "run") -> list[dict[str, Any]]:
    """All runs of the workspace, oldest first.

    Args:
        out: Workspace folder (default unchoke-out).
        sort: What to sort by: a column of `unchoke runs list`, or a metric, the best first.

    Returns:
        For each run its name, settings, status and final metrics, as `unchoke runs list --json` has them.

    Example:
        >>> [run["name"] for run in unchoke.list_runs(out="work")]
        ['exp_1']
    """
    return [describe_run(run) for run in stored_runs(out=out, sort=sort)]


def unlisted_runs(*, out: Path | str | None = None) -> list[Path]:
    """Folders of runs that the database does not know: it is of an earlier day, or of another workspace."""
    workspace = _workspace(out)
    with ExperimentStore.open(workspace.experiments_file) as experiments:
        known = {row.name for row in experiments.runs()}
    folders = [workspace.run_folder(name) for name in listing.names(workspace.experiments, prefix="exp_") if name not in known]
    return [folder for folder in folders if (folder / RECORD).is_file()]


def describe_run(run: StoredRun) -> dict[str, Any]:
    """A run as plain values: what the database holds, its leading metric, and what it trained."""
    metric = summary.leading_metric(run)
    return {**run.to_dict(), **summary.run_setup(run)._asdict(), "headline": None if metric is None else asdict(metric)}


def stored_runs(*, out: Path | str | None = None, sort: str = "run") -> list[StoredRun]:
    """Every run with its final metrics, oldest first or as `sort` says."""
    workspace = _workspace(out)
    with ExperimentStore.open(workspace.experiments_file) as experiments:
        return sort_runs([_stored(experiments, row.name, workspace) for row in experiments.runs()], sort)


def _stored(experiments: ExperimentStore, name: str, workspace: Workspace) -> StoredRun:
    run = experiments.stored(name)
    return run.model_copy(update={"status": _status(run.status, workspace)})


def show_run(run: str | Path = "latest", *, out: str | Path | None = None) -> RunRecord:
    """One run: settings, choices, metrics, timings, files.

    Args:
        run: A run: exp_3, 3, latest, best, or an exported folder.
        out: Workspace folder (default unchoke-out).

    Returns:
        The run's record, as `record.json` has it, without pictures, and the path of its report.

    Example:
        >>> unchoke.show_run("latest", out="work").run
        'exp_1'
    """
    found = find_run(run, out=out)
    kept = {name: value for name, value in found.record.to_dict().items() if name not in ("mistakes", "scatter", "gallery")}
    return RunRecord.of({**kept, "report": str(found.folder / "report.html")})


def compare_runs(runs: Sequence[str], *, out: str | Path | None = None) -> list[StoredRun]:
    """Runs side by side: what differs in settings, and in results.

    Args:
        runs: Two or more runs.
        out: Workspace folder (default unchoke-out).

    Returns:
        Each run as the database knows it, in the order given.

    Example:
        >>> [run.name for run in unchoke.compare_runs(["exp_1", "best"], out="work")]
        ['exp_1', 'exp_1']
    """
    if len(runs) < 2:
        raise UsageError(
            "one run cannot be compared",
            code="compare-needs-two",
            why="a comparison needs two",
            try_="unchoke runs compare exp_1 exp_2",
        )
    workspace = _workspace(out)
    with ExperimentStore.open(workspace.experiments_file) as experiments:
        return [_stored(experiments, run, workspace) for run in runs]


def best_run(metric: str | None = None, *, out: str | Path | None = None) -> RunRecord:
    """The run with the best validation score.

    Args:
        metric: Which metric (default accuracy, or r2).
        out: Workspace folder (default unchoke-out).

    Returns:
        The run's record, as `show_run` gives it.

    Example:
        >>> unchoke.best_run("accuracy", out="work").run
        'exp_1'
    """
    workspace = _workspace(out)
    with ExperimentStore.open(workspace.experiments_file) as experiments:
        name = experiments.run("best").name if metric is None else experiments.best(metric).name
        done = [run for run in experiments.runs() if run.status == "done"]
    divided = divided_alike(done, lambda run: run.settings)
    same = judged_alike(divided, lambda run: run.data)
    others = [run.name for run in done if run not in divided]
    replaced = [run.name for run in divided if run not in same]
    found = show_run(name, out=workspace.root)
    if others:
        found.notes = [*found.notes, f"{list_some(others)} divided the samples otherwise and cannot be compared with it."]
    if replaced:
        fact = "had other photos or labels under the same names and cannot be compared with it."
        found.notes = [*found.notes, f"{list_some(replaced)} {fact}"]
    return found


def report(run: str | Path = "latest", *, out: str | Path | None = None) -> Path:
    """Write report.html of a run again, from its files alone.

    Args:
        run: A run: exp_3, 3, latest, best, or an exported folder.
        out: Workspace folder (default unchoke-out).

    Returns:
        The page that was written.

    Example:
        >>> unchoke.report("latest", out="work").name
        'report.html'
    """
    folder = find_run(run, out=out).folder
    page = folder / "report.html"
    try:
        return save_report(folder)
    except OSError as error:
        if error.errno in NOT_ALLOWED and page.is_file():
            return page
        raise
