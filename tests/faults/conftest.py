"""The scene that the fault tests share: `scene.py` can be imported, and costly things are made once per test process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import scene
from tests.conftest import Once


@pytest.fixture(scope="session")
def place(once: Once) -> scene.Place:
    """Photos of three classes, and weights for a tiny encoder."""
    return scene.Place(once("faults", scene.make_place))


@pytest.fixture(scope="session")
def finished(place: scene.Place, once: Once) -> Path:
    """A workspace in which `fit` ran without interruption; only ever copied, never used."""

    def fit(folder: Path) -> None:
        ended = scene.unchoke("fit", *place.fit_args(folder))
        assert ended.code == 0, ended.stderr

    return once("faults-finished", fit)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished workspace to do harm to."""
    return Path(shutil.copytree(finished, tmp_path / "copied"))


@pytest.fixture
def checked(finished: Path, tmp_path: Path) -> Path:
    """A workspace that knows its data and its engine, but has neither features nor runs."""
    kept = shutil.copytree(finished, tmp_path / "checked", ignore=shutil.ignore_patterns("features", "experiments"))
    return Path(kept)
