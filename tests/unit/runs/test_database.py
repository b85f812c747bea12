"""Migrations: an old file becomes a current one with its rows, and a newer one is refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from unchoke.core.errors import MachineError
from unchoke.runs.database import VERSION, migrate
from unchoke.runs.experiment_store import ExperimentStore


def old_file(path: Path, version: int) -> None:
    """A file as the release with that version left it, with one finished run."""
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, to_version=version)
    connection.execute(
        "INSERT INTO runs (id, name, key, command, status, created_at, settings, data, encoder, fingerprint)"
        " VALUES (4, 'exp_4', 'k', 'fit', 'done', '2026-01-01T00:00:00+00:00', '{\"lr\": 0.1}', '{}', 'lite0', '1a2b')"
    )
    connection.execute("INSERT INTO metrics (run, split, name, step, value) VALUES (4, 'val', 'accuracy', -1, 0.75)")
    connection.close()


def version_of(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_file_of_any_version_opens_with_its_runs(tmp_path: Path, version: int) -> None:
    path = tmp_path / "experiments.db"
    old_file(path, version)
    assert version_of(path) == version
    with ExperimentStore.open(path) as store:
        assert store.run("best").settings == {"lr": 0.1}
        assert store.stored("exp_4").to_dict()["metrics"]["val"]["accuracy"]["value"] == 0.75
        new = store.start_run(key="n", command="fit", settings={}, data={}, encoder="", fingerprint="")
        assert new.name == "exp_5"
    assert version_of(path) == VERSION


def test_an_old_file_ends_with_the_tables_of_a_new_one(tmp_path: Path) -> None:
    old_file(tmp_path / "old.db", 1)
    schemas = []
    for name in ("old.db", "new.db"):
        ExperimentStore.open(tmp_path / name).close()
        with sqlite3.connect(tmp_path / name) as connection:
            schemas.append(connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall())
    assert schemas[0] == schemas[1]


def test_a_migration_that_fails_leaves_the_old_version(tmp_path: Path) -> None:
    path = tmp_path / "experiments.db"
    old_file(path, 1)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE metrics_by_name (x)")
    with pytest.raises(sqlite3.OperationalError):
        ExperimentStore.open(path)
    assert version_of(path) == 1


def test_a_file_of_a_newer_unchoke_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "experiments.db"
    old_file(path, VERSION)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(MachineError, match="knows versions up to"):
        ExperimentStore.open(path)
    assert version_of(path) == VERSION + 1
