"""What tests of commands share: costly results and workspaces, made once in a run. All of them are to be read only."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Once

Kept = Callable[[str, Callable[[Path], Any]], Any]

MORE_RUNS: dict[str, dict[str, Any]] = {
    "attention": {"head": "attention", "views": 2, "epochs": 2},
    "blocks": {"cut": "blocks", "views": 0, "epochs": 2},
    "tiled": {"cut": "blocks", "tiles": "1x2", "views": 0, "epochs": 2},
    "cut": {"cut": "-2", "views": 0, "epochs": 1},
    "whole": {"cut": "none", "views": 0, "epochs": 1},
}


@pytest.fixture(scope="session")
def kept(once: Once) -> Kept:
    """`kept(name, build)` is what `build(folder)` returned, run once for all test processes; its files lie there."""

    def get(name: str, build: Callable[[Path], Any]) -> Any:
        def save(folder: Path) -> None:
            (folder / "kept.pickle").write_bytes(pickle.dumps(build(folder)))

        return pickle.loads((once(f"commands-{name}", save) / "kept.pickle").read_bytes())

    return get


@pytest.fixture(scope="session")
def more_runs(finished: Path, kept: Kept) -> tuple[Path, dict[str, str]]:
    """The finished workspace with a run of each kind more, and the names of these runs by kind."""
    from unchoke.core.events import ignore
    from unchoke.training.fit import train

    def build(folder: Path) -> tuple[Path, dict[str, str]]:
        out = Path(shutil.copytree(finished, folder / "out"))
        return out, {kind: train(out=out, on_event=ignore, workers=1, **how).run for kind, how in MORE_RUNS.items()}

    found: tuple[Path, dict[str, str]] = kept("more-runs", build)
    return found


@pytest.fixture(scope="session")
def value_run(photos: Path, tiny_weights: Path, kept: Kept) -> tuple[Path, str]:
    """A workspace with a run that predicts the targets `dry_g` and `rank` of a table, and the name of the run."""
    from unchoke.core.events import ignore
    from unchoke.training.fit import fit

    def build(folder: Path) -> tuple[Path, str]:
        files = sorted(photos.rglob("*.jpg"))
        lines = [f"{file.relative_to(photos).as_posix()},{10 * number % 97},{number}" for number, file in enumerate(files)]
        (folder / "table.csv").write_text("\n".join(["image,dry_g,rank", *lines]), "utf-8")
        data = {"images": [photos], "path": "image", "target": ["dry_g", "rank"]}
        how = {
            "encoder": "test_resnet",
            "weights": tiny_weights,
            "workers": 1,
            "epochs": 2,
            "engine": "torch",
            "precision": "f32",
        }
        return folder / "out", fit(folder / "table.csv", out=folder / "out", on_event=ignore, **data, **how).run

    found: tuple[Path, str] = kept("value-run", build)
    return found
