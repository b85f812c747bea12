"""Runs in MLflow, by its own client: a server, or a SQLite file.

In: a run and what becomes of it. Out: one MLflow run in the experiment `unchoke` (or MLFLOW_EXPERIMENT_NAME), found again by a
tag. MLflow's usage reports are switched off, and a server that does not answer is given up on after seconds instead of minutes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from unchoke.core.urls import hide_secrets
from unchoke.runs.tracker import End, Figure, TrackedResult, TrackedRun

if TYPE_CHECKING:
    from mlflow import MlflowClient

_IDENTITY, _RESULT = "unchoke.identity", "unchoke.result"
_MOST_FIGURES, _MOST_PARAMS, _MOST_TEXT = 500, 100, 500
"""What one request may hold, and how long a parameter may be, on any server of the last years."""
_ENDS = {"done": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
}
"""Set before MLflow is loaded, where the user has not set them."""


class MlflowTracker:
    """One run at a time in the MLflow at `address`; without one, where MLflow itself would keep it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.where = f"MLflow at {hide_secrets(address)}" if address else "MLflow"
        self._opened: MlflowClient | None = None
        self._run_id = ""
        self._known: Any = None

    def begin(self, run: TrackedRun) -> dict[str, set[int]]:
        client = self._client()
        experiment_id = _experiment(client, os.environ.get("MLFLOW_EXPERIMENT_NAME") or "unchoke")
        found = client.search_runs([experiment_id], f"tags.`{_IDENTITY}` = '{run.identity}'", max_results=1)
        tags = {**run.about, _IDENTITY: run.identity}
        if found:
            self._run_id = found[0].info.run_id
            client.update_run(self._run_id, status="RUNNING")
        else:
            self._run_id = client.create_run(experiment_id, run_name=run.name, tags=tags).info.run_id
        self._known = client.get_run(self._run_id).data
        self._send_params(run.settings)
        self._send_tags({name: value for name, value in tags.items() if self._known.tags.get(name) != value})
        return {name: set(self._steps(name)) for name in self._known.metrics}

    def send(self, figures: Sequence[Figure]) -> None:
        from mlflow.entities import Metric

        rows = [Metric(one.name, one.value, int(1000 * one.at_s), one.step) for one in figures]
        for part in _parts(rows, _MOST_FIGURES):
            self._client().log_batch(self._run_id, metrics=part)

    def hand_in(self, result: TrackedResult) -> None:
        if self._known.tags.get(_RESULT) == result.digest:
            return
        self._send_params({f"chosen.{name}": value for name, value in result.choices.items()})
        for name, file in sorted(result.files.items()):
            folder = PurePosixPath("run", name).parent
            self._client().log_artifact(self._run_id, str(file), str(folder))
        self._send_tags({"mlflow.note.content": result.summary, _RESULT: result.digest})  # the digest says that all is there

    def end(self, how: End) -> None:
        if self._run_id:
            self._client().set_terminated(self._run_id, _ENDS[how])
            self._run_id = ""

    def _client(self) -> MlflowClient:
        if self._opened is None:
            for name, value in _QUIET.items():
                os.environ.setdefault(name, value)
            os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # where results go, and nothing else
            from mlflow import MlflowClient

            for name in ("alembic", "urllib3.connectionpool"):  # tables that are made, requests that are tried again
                logging.getLogger(name).setLevel(logging.ERROR)
            self._opened = MlflowClient(self._address or None)
            self.where = f"MLflow at {hide_secrets(self._opened.tracking_uri)}"
        return self._opened

    def _steps(self, name: str) -> Iterator[int]:
        return (one.step for one in self._client().get_metric_history(self._run_id, name))

    def _send_params(self, values: Mapping[str, str]) -> None:
        """Those that are not there yet: MLflow keeps a parameter as it was first given."""
        from mlflow.entities import Param

        new = [Param(name, value[:_MOST_TEXT]) for name, value in values.items() if name not in self._known.params]
        for part in _parts(new, _MOST_PARAMS):
            self._client().log_batch(self._run_id, params=part)

    def _send_tags(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        if values:
            self._client().log_batch(self._run_id, tags=[RunTag(name, value) for name, value in values.items()])


def _experiment(client: MlflowClient, name: str) -> str:
    """The experiment of that name, made where it is not there; another command may make it meanwhile."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException:
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


def _parts(rows: Sequence[Any], most: int) -> Iterable[list[Any]]:
    return (list(rows[start : start + most]) for start in range(0, len(rows), most))
