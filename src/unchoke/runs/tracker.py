"""Where runs can be sent with `--log`: what a run is there, and what such a place must be able to do.

In: the words typed after `--log`. Out: a refusal where they name nothing that can be used, or a package is missing. A tracker is
asked what it has of a run before anything is sent, so that a run that was killed goes on there, and nothing is in it twice.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol

from unchoke.core import listing
from unchoke.core.errors import UsageError, missing_extra
from unchoke.core.urls import hide_secrets, refuse_secrets

KINDS = ("mlflow", "tensorboard")
End = Literal["done", "interrupted", "failed"]
_VARIABLE, _USUAL = "MLFLOW_TRACKING_URI", "sqlite:///mlflow.db"
_SERVER = re.compile(r"https?://(\[[0-9a-f:.]+\]|[^\s/:?#\[\]]+)(:0*[1-9]\d{0,4})?([/?#].*)?", re.IGNORECASE)
_DATABASE = re.compile(r"sqlite:////?[^/:].*|(postgresql|mysql|mssql)(\+\w+)?://.+", re.IGNORECASE)
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
}


@dataclass(frozen=True)
class Figure:
    """One value of a run at a step: an epoch, a number of images, or 0 for one of the whole run."""

    name: str
    step: int
    value: float
    at_s: float = field(default_factory=time.time, compare=False)


@dataclass(frozen=True)
class TrackedRun:
    """A run when it begins. `identity` stays the same however often it is stopped and goes on, and is that of no other run."""

    name: str
    identity: str
    settings: Mapping[str, str]
    about: Mapping[str, str]


@dataclass(frozen=True)
class TrackedResult:
    """A run that is done: its files by name, what was chosen for it, and a summary. `digest` tells it from an earlier result."""

    files: Mapping[str, Path]
    choices: Mapping[str, str]
    summary: str
    figures: Mapping[str, float]
    digest: str


class Tracker(Protocol):
    """A place that keeps runs of any program. Its methods raise whatever its library raises: the caller goes on without.

    `begin` finds the run or makes it, and says which steps of which figures are there already, as `spell` names them: in letters
    that are taken there, two names never alike. `hand_in` brings files, choices and summary of a run whose figures were sent,
    unless this very result is there already. `end` says how the run ended; it may be begun again. `is_away` tells whether nobody
    answered: otherwise something must be mended before it can be written to.
    """

    where: str
    """What it is and where, for people."""

    def begin(self, run: TrackedRun) -> dict[str, set[int]]: ...
    def spell(self, name: str) -> str: ...
    def send(self, figures: Sequence[Figure]) -> None: ...
    def hand_in(self, result: TrackedResult) -> None: ...
    def end(self, how: End) -> None: ...
    def is_away(self, error: Exception) -> bool: ...


def refuse_unknown_trackers(words: Sequence[str]) -> None:
    """Before anything is read: words that name no tracker or no usable address, and trackers whose package is not installed."""
    for word in words:
        kind, colon, address = word.partition(":")
        try:
            refuse_secrets(address)
        except UsageError as error:
            logins = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            error.try_ = f"leave it out of the URL, and set {logins}"
            raise
        if kind not in KINDS or (colon and (kind == "tensorboard" or not address)):
            raise UsageError(
                f"--log {word} names nothing that runs can be sent to",
                code="unknown-tracker",
                why="mlflow, mlflow:URI and tensorboard are known",
                try_="--log mlflow:http://localhost:5000, or --log tensorboard, which writes into the workspace",
            )
        for package in ("mlflow", "sqlalchemy", "alembic") if kind == "mlflow" else ("tensorboard",):
            if find_spec(package) is None:
                raise missing_extra(package, extra=kind, purpose=f"--log {kind}")
        if kind == "mlflow":
            _refuse_unusable(address)


def _refuse_unusable(address: str) -> None:
    """An address, typed or from the environment, that MLflow can never use, whatever answers there."""
    uri = address or os.environ.get(_VARIABLE) or _usual_place()
    scheme = re.split(r"[:+]", uri, maxsplit=1)[0].lower() if ":" in uri else ""
    known = {"databricks", *entry_points(group="mlflow.tracking_store").names} - {"", "file", "http", "https", "sqlite"}
    is_file = len(scheme) <= 1 or scheme == "file"  # of one letter are drives
    if _SERVER.fullmatch(uri) or _DATABASE.fullmatch(uri) or uri == "databricks" or scheme in known:
        return
    if is_file:
        quieten_mlflow()
        from mlflow import environment_variables

        # MLflow of some versions keeps runs in folders, later ones only where a variable allows it
        allowed = getattr(environment_variables, "MLFLOW_ALLOW_FILE_STORE", None)
        if allowed is None or bool(allowed.get()):
            return
    given = f":{uri}" if address else f" with {_VARIABLE if os.environ.get(_VARIABLE) else 'the folder'} {uri}"
    meant = f"sqlite:///{uri}" if Path(uri).suffix in (".db", ".sqlite", ".sqlite3") and ":" not in uri else _USUAL
    meant = f"http://{uri}" if re.match(r"[\w.\-]+:\d+", uri) else meant
    folders = "; the MLflow that is installed keeps no runs in folders" if is_file else ""
    raise UsageError(
        f"{hide_secrets(f'--log mlflow{given}')} is no address that MLflow can use",
        code="bad-mlflow-address",
        why=f"it takes a server (http://HOST:PORT) or a database (sqlite:///FILE){folders}",
        try_=f"--log mlflow:{meant}",
    )


def _usual_place() -> str:
    """Where MLflow keeps runs if it is told nothing: a database, or the folder of earlier versions where one holds runs."""
    folder = Path("mlruns")
    holds_runs = any((folder / name / "meta.yaml").exists() for name in listing.names(folder) if name.isdigit())
    return str(folder) if holds_runs else _USUAL


def quieten_mlflow() -> None:
    """Before MLflow is loaded: it reports to nobody, prints nothing and waits for seconds, unless the user set otherwise."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # where results go, and nothing else
