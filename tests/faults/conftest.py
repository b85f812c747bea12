"""The scene that the fault tests share: `scene.py` can be imported, and costly things are made once per test process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import scene


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> scene.Place:
    """Photos of three classes, and weights for a tiny encoder."""
    return scene.make_place(tmp_path_factory.mktemp("scene"))


@pytest.fixture(scope="session")
def finished(place: scene.Place) -> Path:
    """A workspace in which `fit` ran without interruption; only ever copied, never used."""
    ended = scene.unchoke("fit", *place.fit_args(place.root / "finished"))
    assert ended.code == 0, ended.stderr
    return place.root / "finished"


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished workspace to do harm to."""
    return Path(shutil.copytree(finished, tmp_path / "copied"))


@pytest.fixture
def checked(finished: Path, tmp_path: Path) -> Path:
    """A workspace that knows its data and its engine, but has neither features nor runs."""
    kept = shutil.copytree(finished, tmp_path / "checked", ignore=shutil.ignore_patterns("features", "experiments"))
    return Path(kept)
