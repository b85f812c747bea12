"""A worker is really spawned, and what cannot go there is named by its path."""

from __future__ import annotations

import functools
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from errors import refused
from unchoke.data.check_samples import check
from unchoke.data.worker_trial import ImageSet, WorkerTrial, find_unpicklable, load_dataset, try_worker


class Bag:
    """Any object with attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, position: int) -> int:
        return position


class Slotted:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Deeper(Slotted):
    __slots__ = "name"


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[Any]:
    with (tmp_path / "x").open("w") as file:
        yield file


def add(left: Any, right: Any) -> Any:
    return left + right


def test_the_pictures_of_a_set_load_in_a_worker(photos: Path) -> None:
    assert try_worker(ImageSet(tuple(str(path) for path in sorted(photos.rglob("*.jpg"))[:3]))) == []


def test_a_trial_left_before_it_is_over_leaves_no_process(photos: Path) -> None:
    with WorkerTrial(ImageSet(tuple(str(path) for path in sorted(photos.rglob("*.jpg"))[:3]))):
        assert multiprocessing.active_children()
    assert not multiprocessing.active_children()


def test_what_fails_in_the_worker_is_told_with_its_reason(tmp_path: Path) -> None:
    (finding,) = try_worker(ImageSet((str(tmp_path / "gone.jpg"),)))
    assert (finding.code, finding.severity) == ("worker-cannot-load", "error")
    assert "missing: " in finding.message
    assert "read_bytes" in finding.evidence["traceback"]
    assert "loader[0]" in finding.fix


def test_lambda_in_dataset_named_by_path() -> None:
    dataset = Bag(root="x", transform=Bag(fns=[len, lambda image: image]))
    (finding,) = try_worker(dataset, name="dataset")
    assert (finding.code, finding.severity) == ("unpicklable", "error")
    assert finding.evidence == {"attribute": "dataset.transform.fns[1]", "type": "function"}
    assert "dataset.transform.fns[1]" in finding.message
    assert "dataset.transform.fns[1]" in finding.fix


def test_unpicklable_attributes_named_by_path(handle: Any) -> None:
    hidden = {
        "dataset.files['b c']": Bag(files={"a": 1, "b c": handle}),
        "dataset.lock": Bag(lock=threading.Lock()),
        "dataset.inner.lock": Bag(inner=Deeper()),
        "dataset.pair[1][0]": Bag(pair=(1, [(number for number in range(3))])),
        "dataset.fn.func": Bag(fn=functools.partial(lambda a, b: a, 1)),
        "dataset.fn.args[0]": Bag(fn=functools.partial(add, threading.Lock())),
        "dataset.fn.keywords['right']": Bag(fn=functools.partial(add, right=handle)),
    }
    assert {path: find_unpicklable(value, "dataset")[0] for path, value in hidden.items()} == {path: path for path in hidden}


def test_a_loop_of_references_ends() -> None:
    left, right = Bag(), Bag(lock=threading.Lock())
    left.other, right.other = right, left  # type: ignore[attr-defined]
    assert find_unpicklable(left, "x")[0].endswith(".lock")


SCRIPT = """
import sys
from unchoke.core.events import ignore
from unchoke.data.check_samples import check

class Leaves:
    def __len__(self):
        return 3
    def __getitem__(self, position):
        return position

{guard}
    result = check(sys.argv[1], dataset=Leaves(), out=sys.argv[2], on_event=ignore)
    for finding in result.findings:
        if finding.stage == "load":
            sys.stdout.write(f"{{finding.code}}|{{finding.fix}}\\n")
    sys.stdout.write(f"ok={{result.ok}}\\n")
"""


@pytest.mark.parametrize(("guard", "sound"), [("if __name__ == '__main__':", True), ("if True:", False)])
def test_a_dataset_defined_in_a_script_is_reported_as_such(photos: Path, tmp_path: Path, guard: str, sound: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard))
    arguments = [sys.executable, str(script), str(photos), str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    if sound:
        assert done.stdout == "ok=True\n"
    else:
        assert done.stdout.startswith("worker-cannot-load|Leaves is defined in __main__")
        assert done.stdout.endswith("ok=False\n")


def check_in_a_pool(paths: tuple[str, ...]) -> list[str]:
    return [finding.code for finding in try_worker(ImageSet(paths))]


def test_a_worker_of_somebody_elses_pool_may_try_one_too(photos: Path) -> None:
    paths = tuple(str(path) for path in sorted(photos.rglob("*.jpg"))[:3])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(check_in_a_pool, (paths,)) == []


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
