"""A dataset is found by its name, or it is said why not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from errors import refused
from unchoke.data.check_samples import check
from unchoke.data.named_dataset import load_dataset

MODULE = """
class Numbers:
    def __len__(self):
        return 3
    def __getitem__(self, place):
        return place

class Locked(Numbers):
    def __init__(self):
        import threading
        self.lock = threading.Lock()

class Stream:
    def __iter__(self):
        return iter(range(9))

class Empty(Numbers):
    def __len__(self):
        return 0

numbers = Numbers()
nothing = object()

def make_numbers():
    return Numbers()

def make_trouble():
    raise RuntimeError("no such disk")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "their_data.py").write_text(MODULE)
    (tmp_path / "broken_data.py").write_text("import no_such_package_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("their_data", "broken_data"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["numbers", "Numbers", "make_numbers"])
@pytest.mark.parametrize("module", ["their_data", "their_data.py"])
def test_an_object_a_class_and_a_function_give_one(folder: Path, module: str, name: str) -> None:
    assert len(load_dataset(f"{module}:{name}")) == 3


@pytest.mark.parametrize(
    ("name", "code", "part"),
    [
        ("their_data", "bad-dataset-name", "MODULE:NAME"),
        (":x", "bad-dataset-name", "MODULE:NAME"),
        ("no_such_module:x", "no-such-module", "no_such_module"),
        ("gone.py:x", "no-such-file", "gone.py"),
        ("broken_data:x", "dataset-failed", "no_such_package_at_all"),
        ("their_data:make_number", "no-such-dataset", "Numbers"),
        ("their_data:make_trouble", "dataset-failed", "RuntimeError: no such disk"),
        ("their_data:nothing", "not-a-dataset", "their_data:nothing"),
    ],
)
def test_what_cannot_be_found_or_made_is_explained(folder: Path, name: str, code: str, part: str) -> None:
    with refused(code, part):
        load_dataset(name)


def test_a_dataset_alone_is_tried_and_nothing_is_written(folder: Path) -> None:
    for name in ("make_numbers", "Stream"):
        found = check(dataset=f"their_data:{name}")
        assert found.ok and not found.findings
    assert not (folder / "unchoke-out").exists()


def test_what_workers_cannot_load_is_an_error(folder: Path) -> None:
    locked, empty = (check(dataset=f"their_data:{name}") for name in ("Locked", "Empty"))
    assert [finding.code for finding in locked.findings] == ["unpicklable"]
    assert "dataset.lock" in locked.findings[0].message
    assert [finding.code for finding in empty.findings] == ["worker-cannot-load"] and not empty.ok
    assert "IndexError" in empty.findings[0].message


def test_a_dataset_beside_data_is_tried_with_it(folder: Path, photos: Path) -> None:
    found = check(photos, dataset="their_data:Locked", out=folder / "out")
    assert "unpicklable" in {finding.code for finding in found.findings}
    assert found.num_samples == 42
