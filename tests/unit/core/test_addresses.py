"""Which addresses a workspace may name: those that its user typed on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from errors import refused
from unchoke.core import addresses

FILE = Path("ws/unchoke.toml")


@pytest.fixture(autouse=True)
def new_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    forget(monkeypatch)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new process of the same user."""
    monkeypatch.setattr(addresses, "_known", set())
    monkeypatch.setattr(addresses, "_unsure", [])


def settle(typed: dict[str, Any], remembered: dict[str, Any]) -> None:
    addresses.settle_addresses(typed, remembered, file=FILE, out=" --out ws")


REMOTE = [
    {"data": "s3://bucket/photos"},
    {"on": "ray://host:10001"},
    {"on": "host:6379"},
    {"log": ["mlflow:http://host:5000"]},
    {"log": ("tensorboard", "mlflow:sqlite:////home/somebody/runs.db")},
    {"weights": "https://host/net.pt"},
]


@pytest.mark.parametrize("values", REMOTE, ids=str)
def test_what_was_typed_once_is_known_from_then_on(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    with refused("address-not-typed", str(FILE)):
        settle({}, values)
    settle(values, {})
    forget(monkeypatch)
    settle({}, values)
    settle({"data": "photos"}, values)


def test_typed_value_takes_the_place_of_a_remembered_one() -> None:
    settle({"on": "local", "data": "photos"}, {"on": "ray://host:10001"})


@pytest.mark.parametrize(
    "values",
    [
        {"data": "photos", "images": ["a", "b"], "on": "auto", "log": ["mlflow", "tensorboard"]},
        {"data": "memory://photos", "on": "local"},
        {"data": Path("photos").absolute().as_uri(), "on": None, "epochs": 3},
    ],
    ids=str,
)
def test_this_machine_is_no_address(values: dict[str, Any]) -> None:
    settle({}, values)


def test_hosts_in_a_table_count_as_typed_with_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_remembered() -> None:
        with addresses.data_named_by(FILE, out=" --out ws"):
            addresses.refuse_store("https://host/a.jpg")

    with refused("address-not-typed", "https://host"):
        read_remembered()
    addresses.refuse_store("https://host/b.jpg")
    forget(monkeypatch)
    read_remembered()


def test_home_that_cannot_be_written_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/state")
    settle({"data": "s3://bucket/photos"}, {})
    settle({}, {"data": "s3://bucket/photos"})
    forget(monkeypatch)
    with refused("address-not-typed"):
        settle({}, {"data": "s3://bucket/photos"})
