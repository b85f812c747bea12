"""Where runs can be sent with `--log`: what a run is there, and what such a place must be able to do.

In: the words typed after `--log`. Out: a refusal where they name nothing, or a package is missing. A tracker is asked what it
has of a run before anything is sent, so that a run that was killed goes on there, and nothing is in it twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol

from unchoke.core.errors import UsageError, missing_extra
from unchoke.core.urls import refuse_secrets
from unchoke.runs.mlflow_address import refuse_unusable

KINDS = ("mlflow", "tensorboard")
End = Literal["done", "interrupted", "failed"]


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
    """A place that keeps runs of any program. Its methods raise whatever its library raises: the caller goes on without."""

    where: str
    """What it is and where, for people."""

    def begin(self, run: TrackedRun) -> dict[str, set[int]]:
        """Find the run or make it; which steps of which figures are there already, as `spell` names them."""
        ...

    def spell(self, name: str) -> str:
        """The name of a figure in letters that are taken there. Two names are never spelt alike."""
        ...

    def send(self, figures: Sequence[Figure]) -> None: ...

    def hand_in(self, result: TrackedResult) -> None:
        """Files, choices and summary of a run whose figures were sent; nothing where this very result is there already."""
        ...

    def end(self, how: End) -> None:
        """Say how the run ended and let go of it. It may be begun again."""
        ...

    def is_away(self, error: Exception) -> bool:
        """Whether nobody answered; otherwise something must be mended before it can be written to."""
        ...


def refuse_unknown_trackers(words: Sequence[str]) -> None:
    """Before anything is read: words that name no tracker or no usable address, and trackers whose package is not installed."""
    for word in words:
        kind, colon, address = word.partition(":")
        _refuse_login(address)
        if kind not in KINDS or (colon and (kind == "tensorboard" or not address)):
            raise UsageError(
                f"--log {word} names nothing that runs can be sent to",
                code="unknown-tracker",
                why="mlflow, mlflow:URI and tensorboard are known",
                try_="--log mlflow:http://localhost:5000, or --log tensorboard, which writes into the workspace",
            )
        needed = ("mlflow", "sqlalchemy", "alembic") if kind == "mlflow" else ("tensorboard",)
        for package in needed:
            if find_spec(package) is None:
                raise missing_extra(package, extra=kind, purpose=f"--log {kind}")
        if kind == "mlflow":
            refuse_unusable(address)


def _refuse_login(address: str) -> None:
    try:
        refuse_secrets(address)
    except UsageError as error:
        logins = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        error.try_ = f"leave it out of the URL, and set {logins}"
        raise
