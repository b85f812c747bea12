"""Migrations: an old file becomes a current one with its rows, and a newer one is refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from errors import refused
from unchoke.core.errors import UnchokeError
from unchoke.runs.database import VERSION, migrate
from unchoke.runs.experiment_store import ExperimentStore, MetricRow


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
    with refused("newer-database", "experiments.db"):
        ExperimentStore.open(path)
    assert version_of(path) == VERSION + 1


def finished_file(path: Path) -> None:
    with ExperimentStore.open(path) as store:
        run = store.start_run(key="n", command="fit", settings={}, data={}, encoder="", fingerprint="")
        store.record(run, metrics=[MetricRow("val", "accuracy", 0.5)])
        store.finish_run(run, "done")


def test_a_file_that_may_not_be_written_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "experiments.db"
    old_file(path, 2)
    before = path.read_bytes()
    connect = sqlite3.connect

    def as_reader(database: object, **how: Any) -> sqlite3.Connection:
        """What a place that may not be written answers to whoever wants to write there."""
        return connect(database if how.get("uri") else f"file:{database}?mode=ro", **{**how, "uri": True})  # type: ignore[arg-type]

    monkeypatch.setattr("unchoke.runs.database.sqlite3.connect", as_reader)
    with ExperimentStore.open(path) as store:
        assert store.run("best").name == "exp_4"
        assert store.stored("exp_4").metrics["val"]["accuracy"].value == 0.75
        with refused("database-refused", "readonly"):
            store.start_run(key="n", command="fit", settings={}, data={}, encoder="", fingerprint="")
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["experiments.db"]


def test_figures_that_were_not_written_so_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "experiments.db"
    finished_file(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE metrics SET value = 0.75")
    with ExperimentStore.open(path) as store:
        for ask in (lambda: store.stored("exp_1"), lambda: store.best("accuracy")):
            with refused("damaged-file", "experiments.db") as caught:
                ask()
            assert "exp_1" in caught.value.why


def test_run_recorded_again_replaces_the_former(tmp_path: Path) -> None:
    finished_file(tmp_path / "experiments.db")
    with ExperimentStore.open(tmp_path / "experiments.db") as store:
        store.record(store.run("exp_1"), metrics=[MetricRow("val", "accuracy", 0.75)])
        assert store.stored("exp_1").metrics["val"]["accuracy"].value == 0.75


def test_emptied_file_beside_runs_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "experiments.db").touch()
    ExperimentStore.open(tmp_path / "experiments.db").close()
    (tmp_path / "exp_1").mkdir()
    (tmp_path / "experiments.db").write_bytes(b"")
    with refused("damaged-database", "experiments.db"):
        ExperimentStore.open(tmp_path / "experiments.db")


def test_any_flipped_byte_is_an_explained_error(tmp_path: Path) -> None:
    path = tmp_path / "experiments.db"
    finished_file(path)
    sound = path.read_bytes()
    with ExperimentStore.open(path) as store:
        told = store.stored("exp_1").to_dict()
    for place in range(0, len(sound), 183):
        data = bytearray(sound)
        data[place] ^= 0xFF
        path.write_bytes(data)
        for beside in ("-wal", "-shm"):
            path.with_name(f"{path.name}{beside}").unlink(missing_ok=True)
        try:
            with ExperimentStore.open(path) as store:
                assert store.stored("exp_1").to_dict() == told
        except UnchokeError as error:
            assert error.try_
