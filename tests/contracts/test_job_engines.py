"""One suite for every engine of `jobs`: whoever passes it can run the micro-jobs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import job_bodies
import pytest

from children import same_imports
from errors import refused
from unchoke.core.errors import MachineError
from unchoke.jobs.attempts import Outcome, WorkerDied
from unchoke.jobs.cluster.connection import cluster_at
from unchoke.jobs.cluster.hosts import HostPlan
from unchoke.jobs.cluster.ray_engine import RayEngine
from unchoke.jobs.job_engines import InProcessEngine, JobEngine, ProcessEngine

ENGINES: dict[str, Callable[[], JobEngine]] = {
    "in process": InProcessEngine,
    "threads": lambda: InProcessEngine(slots=2),
    "processes": lambda: ProcessEngine(workers=2),
}
SIZE = {"in process": 1, "threads": 2, "processes": 2, "ray": 2}
if CLUSTER := os.environ.get("UNCHOKE_TEST_CLUSTER"):  # tests/cluster runs this suite on a node of a cluster it made

    def _on_ray() -> JobEngine:
        cluster = cluster_at(CLUSTER)
        assert cluster is not None
        here = socket.gethostname()
        return RayEngine(cluster, plan=lambda node: [HostPlan(0.5)] * 2 if node.name == here else [])

    ENGINES["ray"] = _on_ray


@pytest.fixture(params=ENGINES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(kind: str) -> JobEngine:
    return ENGINES[kind]()


def values(outcomes: Iterator[Outcome[Any, Any]]) -> dict[Any, Any]:
    seen = list(outcomes)
    found = {outcome.task: outcome.value for outcome in seen}
    assert len(found) == len(seen), "a task came out twice"
    assert [outcome.error for outcome in seen] == [None] * len(seen)
    return found


def test_every_task_comes_out_once(engine: JobEngine) -> None:
    assert values(engine.map_unordered(job_bodies.square, range(20))) == {task: task * task for task in range(20)}


def test_no_tasks_give_no_outcomes(engine: JobEngine) -> None:
    assert list(engine.map_unordered(job_bodies.square, [])) == []


def test_an_engine_can_be_used_again_after_a_stop(engine: JobEngine) -> None:
    engine.stop()
    assert len(values(engine.map_unordered(job_bodies.square, range(3)))) == 3


def test_a_slow_task_holds_no_other_up(kind: str, engine: JobEngine, tmp_path: Path) -> None:
    if SIZE[kind] == 1:
        pytest.skip("one at a time by nature")
    gate = tmp_path / "gate"
    outcomes = engine.map_unordered(job_bodies.wait_for_file, [(str(gate), 60.0), ("", 0.0), ("", 0.0), ("", 0.0)])
    assert [next(outcomes).value for _ in range(3)] == ["", "", ""]
    gate.touch()
    assert next(outcomes).value == str(gate)
    assert list(outcomes) == []


def test_exception_belongs_to_its_task(engine: JobEngine) -> None:
    outcomes = {outcome.task: outcome for outcome in engine.map_unordered(job_bodies.fail_on_odd, range(6))}
    assert {task: outcome.value for task, outcome in outcomes.items() if outcome.error is None} == {0: 0, 2: 2, 4: 4}
    assert isinstance(outcomes[3].error, ValueError)
    assert str(outcomes[3].error) == "odd: 3"
    assert "in fail_on_odd" in outcomes[3].traceback_text


def test_a_body_that_exits_is_a_failed_task(engine: JobEngine) -> None:
    outcomes = {outcome.task: outcome for outcome in engine.map_unordered(job_bodies.leave_on_odd, range(4))}
    assert isinstance(outcomes[1].error, SystemExit)
    assert outcomes[2].value == 2


def test_our_own_errors_keep_their_three_lines(engine: JobEngine) -> None:
    (outcome,) = engine.map_unordered(job_bodies.machine_error, [7])
    assert isinstance(outcome.error, MachineError)
    assert (outcome.error.what, outcome.error.why, outcome.error.try_) == ("no room for 7", "a test", "nothing")


def test_an_error_that_cannot_travel_is_still_told(engine: JobEngine) -> None:
    (outcome,) = engine.map_unordered(job_bodies.raise_unsendable, [0])
    assert "strange words" in str(outcome.error)
    assert "raise_unsendable" in outcome.traceback_text


def test_setup_runs_before_the_first_task(engine: JobEngine) -> None:
    outcomes = engine.map_unordered(job_bodies.greeting, [1, 2, 3], setup=job_bodies.greet, setup_args=("hello",))
    assert set(values(outcomes).values()) == {"hello 1", "hello 2", "hello 3"}


def test_a_setup_that_fails_ends_the_run_with_its_error(engine: JobEngine) -> None:
    with refused("of-a-test", "no weights here"):
        list(engine.map_unordered(job_bodies.square, range(5), setup=job_bodies.refuse))


def test_tasks_are_taken_only_as_there_is_room(kind: str, engine: JobEngine) -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for task in range(50):
            taken.append(task)
            yield task

    for seen, _ in enumerate(engine.map_unordered(job_bodies.square, tasks()), start=1):
        assert len(taken) - seen <= SIZE[kind]
    assert len(taken) == 50


def test_stop_finishes_what_is_in_flight_and_takes_no_more(kind: str, engine: JobEngine, tmp_path: Path) -> None:
    taken: list[tuple[str, str]] = []

    def tasks() -> Iterator[tuple[str, str]]:
        for number in range(50):
            taken.append((str(tmp_path / f"begun_{number}"), str(tmp_path)))
            yield taken[-1]

    outcomes = engine.map_unordered(job_bodies.mark_then_wait, tasks())
    finished = [next(outcomes).task]
    engine.stop()
    finished += [outcome.task for outcome in outcomes]
    assert sorted(finished) == sorted(taken)
    assert len(taken) <= SIZE[kind] + 2
    assert all(Path(mark).exists() for mark, _ in taken)


def test_closing_the_outcomes_early_leaves_nothing_running(engine: JobEngine) -> None:
    outcomes = engine.map_unordered(job_bodies.process_of, range(50))
    worker = next(outcomes).value
    outcomes.close()
    _until(lambda: worker == os.getpid() or not _alive(worker), limit_s=5.0)


def test_processes_report_a_result_that_cannot_be_sent() -> None:
    outcomes = {outcome.task: outcome for outcome in ProcessEngine(2).map_unordered(job_bodies.return_unsendable, range(3))}
    assert "cannot be sent" in str(outcomes[1].error)
    assert (outcomes[0].value, outcomes[2].value) == (0, 2)


def test_processes_report_a_task_that_cannot_be_sent() -> None:
    outcomes = list(ProcessEngine(2).map_unordered(job_bodies.process_of, [1, lambda: None, 2]))
    assert [isinstance(outcome.value, int) for outcome in outcomes].count(True) == 2
    assert any("cannot be sent" in str(outcome.error) for outcome in outcomes)


def test_a_killed_worker_costs_its_task_and_is_replaced(tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    outcomes = list(ProcessEngine(2).map_unordered(job_bodies.kill_self_once, [(number, mark) for number in range(8)]))
    dead = [outcome for outcome in outcomes if outcome.error is not None]
    assert [outcome.task for outcome in dead] == [(2, mark)]
    assert isinstance(dead[0].error, WorkerDied)
    assert "SIGKILL" in str(dead[0].error)
    assert sorted(outcome.value for outcome in outcomes if outcome.error is None) == [0, 1, 3, 4, 5, 6, 7]


def test_killed_worker_is_noticed_despite_its_child() -> None:
    outcomes = {outcome.task: outcome for outcome in ProcessEngine(2).map_unordered(job_bodies.leave_a_child_and_die, range(3))}
    assert isinstance(outcomes[1].error, WorkerDied)
    assert (outcomes[0].value, outcomes[2].value) == (0, 2)


def test_workers_that_never_get_ready_end_the_run() -> None:
    with refused("workers-cannot-start", "SIGKILL"):
        list(ProcessEngine(2).map_unordered(job_bodies.square, range(50), setup=job_bodies.die))


def test_workers_ignore_stop_signals() -> None:
    assert values(ProcessEngine(2).map_unordered(job_bodies.interrupt_self, range(4))) == {0: 0, 1: 1, 2: 2, 3: 3}


DRIVER = """
import sys
import job_bodies
from unchoke.jobs.job_engines import ProcessEngine
if __name__ == "__main__":
    folder = sys.argv[1]
    tasks = [(folder + "/worker_" + str(number), folder + "/never") for number in range(2)]
    list(ProcessEngine(2).map_unordered(job_bodies.mark_then_wait, tasks))
"""


def test_workers_do_not_outlive_a_killed_driver(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    driver = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=same_imports())
    marks = [tmp_path / "worker_0", tmp_path / "worker_1"]
    _until(lambda: all(mark.exists() and mark.read_text() for mark in marks))
    driver.kill()
    driver.wait()
    _until(lambda: not any(_alive(int(mark.read_text())) for mark in marks))


FEW_DESCRIPTORS = """
import resource, sys
import job_bodies
from unchoke.jobs.job_engines import ProcessEngine
if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    for _ in range(5):
        outcomes = list(ProcessEngine(4).map_unordered(job_bodies.fail_on_odd, range(8)))
        assert len(outcomes) == 8
    mark = sys.argv[1]
    assert len(list(ProcessEngine(2).map_unordered(job_bodies.kill_self_once, [(n, mark) for n in range(8)]))) == 8
"""


def test_processes_work_with_64_descriptors(tmp_path: Path) -> None:
    script = tmp_path / "few.py"
    script.write_text(FEW_DESCRIPTORS)
    subprocess.run([sys.executable, str(script), str(tmp_path / "mark")], env=same_imports(), check=True, timeout=120)


def _alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be collected by its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def _until(condition: Callable[[], bool], *, limit_s: float = 30.0) -> None:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit_s
        time.sleep(0.01)


def test_unguarded_main_script_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import math\n"
        "from unchoke.jobs.job_engines import ProcessEngine\n"
        "print('ran')\n"
        "print(sorted(outcome.value for outcome in ProcessEngine(2).map_unordered(math.sqrt, [4.0, 9.0])))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "ran\n[2.0, 3.0]\n", done.stderr
