"""Runs in MLflow, by its own client: a server, or a SQLite file.

In: a run and what becomes of it. Out: one MLflow run in the experiment `unchoke` (or MLFLOW_EXPERIMENT_NAME), found again by a
tag. A server that does not answer, or a database that cannot be opened, is given up on after seconds instead of minutes.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from unchoke.core.fingerprint import digest
from unchoke.core.urls import hide_secrets
from unchoke.runs.tracker import End, Figure, TrackedResult, TrackedRun, quieten_mlflow

if TYPE_CHECKING:
    from mlflow import MlflowClient

_IDENTITY, _RESULT = "unchoke.identity", "unchoke.result"
_MOST_FIGURES, _MOST_PARAMS, _MOST_TEXT = 500, 100, 500
"""What one request may hold, and how long a parameter may be, on any server of the last years."""
_LONGEST_NAME = 250
_REFUSED = re.compile(r"[^\w\-. ]|_(?=x[0-9a-f]*(?:_|[^\w\-. ]))")  # and an underscore that would read as a number's beginning
_DOTS, _EMPTY = re.compile(r"^\.\.?$"), "_x_"
_ENDS = {"done": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_MOST_ATTEMPTS = 3
"""At opening a database, which takes less than a second; MLflow's own ten take minutes."""


class MlflowTracker:
    """One run at a time in the MLflow at `address`; without one, where MLflow itself would keep it."""

    def __init__(self, address: str) -> None:
        self._uri = address
        self.where = f"MLflow at {hide_secrets(address)}" if address else "MLflow"
        self._opened: MlflowClient | None = None
        self._run_id = self._experiment_id = self._identity = ""
        self._known: Any = None

    def begin(self, run: TrackedRun) -> dict[str, set[int]]:
        client = self._client()
        self._identity = run.identity
        self._experiment_id = _experiment(client, os.environ.get("MLFLOW_EXPERIMENT_NAME") or "unchoke")
        tags = {**run.about, _IDENTITY: run.identity}
        if known := self._find():
            client.update_run(known, status="RUNNING")
        else:
            made = client.create_run(self._experiment_id, run_name=run.name, tags=tags).info.run_id
            known = self._find() or made  # where the first answer was lost, MLflow's client has asked again, and there are two
        self._run_id = known
        self._known = client.get_run(self._run_id).data
        self._send_params(run.settings)
        self._send_tags({name: value for name, value in tags.items() if self._known.tags.get(name) != value})
        return {name: {one.step for one in client.get_metric_history(self._run_id, name)} for name in self._known.metrics}

    def _find(self) -> str:
        """The run of this identity, or "". Empty ones beside it, made by requests whose answers were lost, are deleted."""
        found = self._client().search_runs([self._experiment_id], f"tags.`{_IDENTITY}` = '{self._identity}'")
        filled = sorted(found, key=lambda run: (-_num_values(run), run.info.start_time))
        for extra in filled[1:]:
            if not _num_values(extra):
                self._client().delete_run(extra.info.run_id)
        return str(filled[0].info.run_id) if filled else ""

    def spell(self, name: str) -> str:
        return spell(name)

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
            self._find()  # once more: a request that was given up on may have been carried out late
            self._client().set_terminated(self._run_id, _ENDS[how])
            self._run_id = ""

    def is_away(self, error: Exception) -> bool:
        return _is_server(self._uri) and not 400 <= _status(error) < 500

    def _client(self) -> MlflowClient:
        if self._opened is None:
            quieten_mlflow()
            from mlflow import MlflowClient, get_tracking_uri

            for name in ("alembic", "urllib3.connectionpool"):  # tables that are made, requests that are tried again
                logging.getLogger(name).setLevel(logging.ERROR)
            self._uri = self._uri or get_tracking_uri()
            if not _is_server(self._uri):
                from mlflow.store.db import utils as databases

                databases.MAX_RETRY_COUNT = _MOST_ATTEMPTS
            self.where = f"MLflow at {hide_secrets(self._uri)}"
            self._opened = MlflowClient(self._uri)
        return self._opened

    def _send_params(self, values: Mapping[str, str]) -> None:
        """Those that are not there yet: MLflow keeps a parameter as it was first given."""
        from mlflow.entities import Param

        spelt = {spell(name): value[:_MOST_TEXT] for name, value in values.items()}
        new = [Param(name, value) for name, value in spelt.items() if name not in self._known.params]
        for part in _parts(new, _MOST_PARAMS):
            self._client().log_batch(self._run_id, params=part)

    def _send_tags(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        if values:
            self._client().log_batch(self._run_id, tags=[RunTag(name, value) for name, value in values.items()])


def _is_server(uri: str) -> bool:
    return uri.lower().startswith(("http:", "https:"))


def _status(error: Exception) -> int:
    """The HTTP status of an answer, by what MLflow's client and its uploads raise; 500 or 0 where none came."""
    if hasattr(error, "get_http_status_code"):
        return int(error.get_http_status_code())
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def _num_values(run: Any) -> int:
    return len(run.data.params) + len(run.data.metrics)


def spell(name: str) -> str:
    """A name in what MLflow takes: letters of any script, digits, blanks and ``_-./``. Other signs are numbers: ``_x28_``.

    What MLflow takes stays as it is, so that names are read as they were written; two names are never spelt alike. A part between
    slashes must not be empty, nor a dot or two: MLflow may make folders of them. A name that is too long ends in its digest.
    """
    plain = "/".join(_EMPTY if part == "" else _DOTS.sub(_as_number, _REFUSED.sub(_as_number, part)) for part in name.split("/"))
    return plain if len(plain) <= _LONGEST_NAME else f"{plain[: _LONGEST_NAME - 19]}_x{digest([name])[:16]}_"


def _as_number(found: re.Match[str]) -> str:
    return "".join(f"_x{ord(letter):x}_" for letter in found[0])


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


def _parts(rows: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (rows[start : start + most] for start in range(0, len(rows), most))
