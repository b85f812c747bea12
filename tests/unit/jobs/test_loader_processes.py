"""Reader processes: everything submitted comes back once, through shared memory, and a reader that dies costs its task alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.errors import MachineError
from unchoke.jobs.attempts import WorkerDied
from unchoke.jobs.loader_processes import LoaderProcesses, SharedBlock, start_method, worth_processes


@dataclass(frozen=True)
class Spell:
    """Writes a number's digits into the memory, and answers how many there are and who wrote them."""

    dies_on: int = -1

    def __call__(self, task: int, memory: memoryview) -> tuple[int, int]:
        if task == self.dies_on:
            os.kill(os.getpid(), signal.SIGKILL)
        digits = str(task).encode()
        memory[: len(digits)] = digits
        return len(digits), os.getpid()


def read_all(
    readers: LoaderProcesses[int, tuple[int, int]], tasks: list[int]
) -> tuple[dict[int, str], dict[int, BaseException], set[int]]:
    """What was written for each task, the errors of the others, and the processes that wrote."""
    written: dict[int, str] = {}
    errors: dict[int, BaseException] = {}
    pids: set[int] = set()
    waiting = list(tasks)
    while waiting or readers.in_flight:
        while waiting and readers.has_room:
            readers.submit(waiting.pop())
        chunk = readers.take()
        assert chunk.task not in written
        if chunk.value is None:
            assert chunk.error is not None
            errors[chunk.task] = chunk.error
        else:
            written[chunk.task] = bytes(chunk.memory[: chunk.value[0]]).decode()
            pids.add(chunk.value[1])
        chunk.release()
    return written, errors, pids


def test_every_task_comes_back_with_what_was_written_for_it() -> None:
    with closing(LoaderProcesses(Spell(), processes=2, region_bytes=4096)) as readers:
        written, errors, pids = read_all(readers, list(range(95, 120)))
    assert written == {task: str(task) for task in range(95, 120)}
    assert not errors
    assert os.getpid() not in pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_reader_that_dies_costs_its_task_and_no_other() -> None:
    with closing(LoaderProcesses(Spell(dies_on=7), processes=2, region_bytes=4096)) as readers:
        written, errors, _ = read_all(readers, list(range(20)))
    assert list(errors) == [7]
    assert isinstance(errors[7], WorkerDied)
    assert sorted(written) == [task for task in range(20) if task != 7]


def test_memory_is_not_written_again_before_it_is_released() -> None:
    with closing(LoaderProcesses(Spell(), processes=1, region_bytes=4096)) as readers:
        held = []
        while readers.has_room:
            readers.submit(100 + len(held))
            held.append(readers.take())
        assert [bytes(chunk.memory[:3]).decode() for chunk in held] == [str(chunk.task) for chunk in held]
        held[0].release()
        assert readers.has_room


@dataclass(frozen=True)
class Refuses:
    """Cannot even be unpacked in a reader."""

    def __call__(self, task: int, memory: memoryview) -> int:
        return task

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return _refuse, ()


def _refuse() -> object:
    raise MachineError("no reader here", code="of-a-test", why="a test says so", try_="nothing")


def test_readers_that_cannot_start_are_told() -> None:
    with closing(LoaderProcesses(Refuses(), processes=1, region_bytes=4096)) as readers:
        readers.submit(1)
        with refused("of-a-test", "no reader here"):
            readers.take()


def test_closing_does_not_wait_for_what_is_being_read(tmp_path: Path) -> None:
    readers = LoaderProcesses(Sleeps(str(tmp_path / "began")), processes=1, region_bytes=4096)
    readers.submit(0)
    until = time.monotonic() + 60
    while not (tmp_path / "began").exists():
        assert time.monotonic() < until, "the reader never began"
        time.sleep(0.01)
    readers.close()


@dataclass(frozen=True)
class Sleeps:
    """Says that it began, and never ends."""

    began: str

    def __call__(self, task: int, memory: memoryview) -> int:
        Path(self.began).touch()
        while True:
            signal.pause()


@pytest.mark.skipif(sys.platform != "linux", reason="readers are forked on Linux only")
def test_forkserver_that_died_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from multiprocessing import forkserver

    connect, failures = forkserver.connect_to_new_process, iter([EOFError("unexpected EOF"), ConnectionRefusedError()])

    def dying(fds: list[int]) -> tuple[int, int]:
        if (failure := next(failures, None)) is not None:
            raise failure
        return connect(fds)

    monkeypatch.setattr(forkserver, "connect_to_new_process", dying)
    with closing(LoaderProcesses(Spell(), processes=1, region_bytes=4096)) as readers:
        assert read_all(readers, [5, 6])[0] == {5: "5", 6: "6"}


@pytest.mark.skipif(sys.platform != "linux", reason="readers are forked on Linux only")
def test_readers_that_cannot_be_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    from multiprocessing import forkserver

    def dead(fds: list[int]) -> tuple[int, int]:
        raise EOFError("unexpected EOF")

    monkeypatch.setattr(forkserver, "connect_to_new_process", dead)
    with closing(LoaderProcesses(Spell(), processes=1, region_bytes=4096)) as readers:
        readers.submit(1)
        with refused("workers-cannot-start", "EOFError"):
            readers.take()


_ALONE = """
import operator
from contextlib import closing
from unchoke.jobs.loader_processes import LoaderProcesses, preload_workers, start_method

preload_workers(["json", "numpy"])
with closing(LoaderProcesses(operator.is_, processes=1, region_bytes=4096)) as readers:
    readers.submit(1)
    chunk = readers.take()
print(start_method(), chunk.value, chunk.error)
"""


def run_alone(folder: Path, **variables: str) -> str:
    """What a script of its own, without a guard, says of readers when it is run in `folder`."""
    script = folder / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text(_ALONE)
    where = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": where, **variables}
    done = subprocess.run([sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_readers_import_nothing_from_the_users_folder(tmp_path: Path) -> None:
    for name in ("numpy.py", "random.py", "selectors.py"):
        (tmp_path / name).write_text("raise RuntimeError('this is not the module you look for')")
    assert run_alone(tmp_path).split() == [start_method(), "False", "None"]


@pytest.mark.skipif(sys.platform != "linux", reason="readers are forked on Linux only")
def test_readers_are_spawned_where_a_socket_cannot_be_made(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    assert run_alone(tmp_path, TMPDIR=str(deep)).split() == ["spawn", "False", "None"]


def test_few_cores_or_few_files_are_left_to_threads() -> None:
    assert not worth_processes(100_000, workers=2)
    assert not worth_processes(100, workers=16)
    assert worth_processes(10_000, workers=16)


def test_shared_file_goes_though_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS and Windows, which know no files without a name; Windows keeps one that is mapped."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    block = SharedBlock(4096)
    held = block.view[:16]
    held[:3] = b"abc"
    file = Path(block.path)
    assert file.read_bytes()[:3] == b"abc"
    block.close()
    assert bytes(held[:3]) == b"abc"
    assert not file.parent.exists()
    held.release()
