"""What one cell costs, measured in the process that runs it."""

from __future__ import annotations

import ast
import mmap
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from unchoke.notebooks import cell_meter as cell

linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell")


def measured(work: Any) -> dict[str, Any]:
    meter = cell.Meter()
    meter.begin()
    try:
        work()
    finally:
        figures = meter.end()
    return figures


def spin(seconds: float) -> None:
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass


def test_seconds_and_cpu_seconds_are_those_of_the_work() -> None:
    slept = measured(lambda: time.sleep(0.2))
    assert 0.19 < slept["wall_s"] < 1.0
    assert slept["cpu_s"] < 0.15
    assert measured(lambda: spin(0.2))["cpu_s"] >= 0.19


@linux
def test_cpu_seconds_of_a_child_process_count() -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass"
    figures = measured(lambda: subprocess.run([sys.executable, "-c", code], check=True))
    assert figures["cpu_s"] >= 0.29
    assert figures["children_peak_bytes"] > 1_000_000


@linux
def test_the_peak_is_seen_although_the_memory_is_free_again() -> None:
    def work() -> None:
        with mmap.mmap(-1, 80_000_000) as block:  # what malloc gives may be memory that is there already
            for start in range(0, 80_000_000, mmap.PAGESIZE):
                block[start] = 1

    figures = measured(work)
    assert figures["peak_rss_bytes"] - figures["rss_before_bytes"] > 70_000_000
    assert figures["rss_after_bytes"] - figures["rss_before_bytes"] < 20_000_000


@linux
def test_bytes_read_and_written_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "block"
    figures = measured(lambda: (file.write_bytes(bytes(5_000_000)), file.read_bytes()))
    assert figures["read_bytes"] >= 5_000_000
    assert figures["written_bytes"] >= 5_000_000


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What torch keeps its loaders' iterators in, with batches that take their time."""

    class Batches:
        left = 3

        def __next__(self) -> int:
            time.sleep(0.05)
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

    module = ModuleType("torch.utils.data.dataloader")
    module._BaseDataLoaderIter = Batches  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    yield Batches


def test_batch_waits_are_timed_and_loader_restored(loader: Any) -> None:
    original = loader.__next__
    batches = loader()

    def work() -> None:
        while next(batches, None) is not None:
            pass

    figures = measured(work)
    assert figures["batches"] == 3
    assert 0.19 < figures["wait_s"] <= figures["wall_s"]
    assert loader.__next__ is original


class Cuda:
    """Two devices whose tensors took what they took."""

    def __init__(self) -> None:
        self.peaks = [7_000, 500]

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return len(self.peaks)

    def reset_peak_memory_stats(self, device: int) -> None:
        self.peaks[device] = 0

    def max_memory_allocated(self, device: int) -> int:
        return self.peaks[device]


def test_memory_of_devices_is_that_of_the_cell_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert measured(lambda: cuda.peaks.__setitem__(1, 300))["device_peak_bytes"] == 300
    monkeypatch.setattr(cuda, "is_initialized", lambda: False)
    assert measured(lambda: None)["device_peak_bytes"] is None


def test_it_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(cell.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names - {"psutil"} <= sys.stdlib_module_names | {"collections.abc"}


def test_the_line_of_a_failure_is_that_of_the_cell() -> None:
    def failed(code: str) -> Any:
        try:
            exec(compile(code, "<ipython-input-1>", "exec"), {})
        except Exception as error:
            return SimpleNamespace(error_before_exec=None, error_in_exec=error)
        raise AssertionError

    assert cell.failing_line(failed("def f():\n    1 / 0\n\nf()")) == 4
    assert cell.failing_line(failed("a = 1\nexec('b = 1\\nc = 1\\n1 / 0')")) == 2
    broken = SyntaxError("no", ("cell", 3, 1, "x"))
    assert cell.failing_line(SimpleNamespace(error_before_exec=broken, error_in_exec=None)) == 3
    assert cell.failing_line(SimpleNamespace(error_before_exec=None, error_in_exec=None)) is None
