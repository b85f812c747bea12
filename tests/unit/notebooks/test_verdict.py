"""Keep, segment, eliminate or optimise, and why."""

from __future__ import annotations

import pytest

from unchoke.core.findings import Finding
from unchoke.notebooks.cell_record import CellFigures, CellRun, Status
from unchoke.notebooks.cells import CellReading
from unchoke.notebooks.setting import NotebookContext
from unchoke.notebooks.tasks import NotebookTask
from unchoke.notebooks.verdict import CellVerdict, judge, weigh

MB = 1_000_000
SETTING = NotebookContext("book.ipynb", NotebookTask("classes", "photos"), epochs={1: 20})
NO_COMMAND = NotebookContext("book.ipynb", NotebookTask(other="generates pictures"), epochs={1: 20})


def finding(code: str, command: str = "") -> Finding:
    return Finding(code, f"there is {code}", line=7, cell=1, command=command, fix="do otherwise")


def ran(wall_s: float = 0.1, rise: int = 0, status: Status = "done", wait_s: float = 0.0, output: int = 0) -> CellRun:
    figures = CellFigures(
        wall_s=wall_s,
        cpu_s=wall_s,
        rss_before_bytes=50 * MB,
        peak_rss_bytes=50 * MB + rise,
        rss_after_bytes=50 * MB,
        wait_s=wait_s,
    )
    return CellRun(status, figures, output)


def verdict(*deeds: str, findings: tuple[Finding, ...] = (), run: CellRun | None = None, **cell: bool) -> CellVerdict:
    reading = CellReading(1, "some code of this cell", deeds, deeds, **cell)
    others = {2: ran(0.2), 3: ran(0.3)}
    costs = weigh({1: run, **others}) if run is not None else None
    return judge(reading, findings, SETTING, earlier={}, run=run, costs=costs)


@pytest.mark.parametrize(
    ("deeds", "word", "command"),
    [
        (("installs packages", "looks at the machine"), "eliminate", ""),
        (("installs packages", "reads tables"), "optimise", ""),
        (("looks at the machine",), "eliminate", "unchoke doctor"),
        (("checks every file", "reads images"), "eliminate", "unchoke check photos"),
        (("checks every file", "reads tables"), "optimise", "unchoke check photos"),
        (("downloads", "unpacks archives"), "eliminate", ""),
        (("copies the data",), "eliminate", ""),
        (("installs packages", "downloads"), "eliminate", ""),
        (("copies the data", "computes"), "optimise", ""),
        (("decodes everything", "reads images", "lists files"), "optimise", "unchoke fit photos --cut none"),
        (("fetches a file once",), "keep", ""),
        (("has comments only",), "keep", ""),
        (("frees memory",), "eliminate", ""),
        (("trains", "evaluates"), "segment", "unchoke fit photos --cut none"),
        (("trains on features",), "keep", ""),
        (("extracts features",), "segment", "unchoke extract photos"),
        (("reads tables", "plots"), "keep", ""),
    ],
)
def test_cell_actions_decide_if_nothing_was_measured(deeds: tuple[str, ...], word: str, command: str) -> None:
    found = verdict(*deeds)
    assert (found.word, found.command) == (word, command)
    assert found.reason


def test_what_is_done_only_once_may_stay() -> None:
    assert verdict("downloads", "unpacks archives", guarded=True).word == "keep"


def test_choke_point_is_optimised_with_its_rules_command() -> None:
    found = verdict("makes loaders", findings=(finding("eval-batch"), finding("stat-per-sample", "unchoke check DATA")))
    assert (found.word, found.command) == ("optimise", "unchoke check photos")
    assert found.reason == "line 7: there is eval-batch (and 1 more)"


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("unchoke tune", "unchoke tune photos"),
        ("unchoke tile", ""),
        ("unchoke train DATA --cut -4", "unchoke train photos --cut -4"),
        ("unchoke profile -- python SCRIPT", "unchoke profile -- jupyter execute book.ipynb"),
        ("unchoke doctor", "unchoke doctor"),
    ],
)
def test_a_rules_command_can_be_typed_for_this_notebook(command: str, typed: str) -> None:
    assert verdict("makes loaders", findings=(finding("a-rule", command),)).command == typed


def test_tiles_one_by_one_are_segmented() -> None:
    assert verdict("predicts", findings=(finding("tile-loop"),)) == CellVerdict(
        "segment",
        "a network over one tile at a time: batches of tiles in jobs, which go on after a kill",
    )


@pytest.mark.parametrize(
    ("deeds", "rule"),
    [
        (("trains",), ""),
        (("checks every file", "reads images"), ""),
        (("extracts features",), ""),
        (("decodes everything",), ""),
        (("makes loaders",), "unchoke extract"),
        (("makes loaders",), "unchoke fit DATA"),
    ],
)
def test_no_command_that_cannot_read_the_data(deeds: tuple[str, ...], rule: str) -> None:
    reading = CellReading(1, "some code of this cell", deeds, deeds)
    found = judge(reading, (finding("a-rule", rule),) if rule else (), NO_COMMAND, earlier={})
    assert found.command == ""
    assert found.word != "keep"
    assert "the same line" not in found.reason and "`check`" not in found.reason


def test_what_is_no_python_is_kept_and_said_to_be_unread() -> None:
    found = judge(CellReading(1, "x <- 1", ("is another language",), language="R"), (), SETTING, earlier={})
    assert found == CellVerdict("keep", "not read: R is no Python")


def test_only_long_training_is_segmented() -> None:
    assert verdict("trains", run=ran(0.2)).word == "keep"
    assert verdict("trains", run=ran(700.0)).word == "segment"
    stopped = verdict("trains", run=ran(600.0, status="timeout"))
    assert stopped.word == "segment"
    assert "stopped at 10 min 0 s" in stopped.reason


def test_cell_with_most_time_or_memory_says_so() -> None:
    slow = verdict("computes", run=ran(3.0))
    assert slow == CellVerdict("optimise", "takes 3.0 s of the run's 3.5 s (86%)")
    hungry = verdict("computes", run=ran(0.1, rise=700 * MB))
    assert hungry == CellVerdict("optimise", "takes 700.0 MB of memory (peak 750.0 MB); none of it stays")
    assert verdict("computes", run=ran(0.4)).word == "keep"
    assert verdict("imports", run=ran(3.0)).word == "keep"


def test_waiting_for_data_is_named() -> None:
    found = verdict("trains", run=ran(100.0, wait_s=70.0))
    assert found.reason == "70% of its 1 min 40 s are spent waiting for data"
    assert found.command == "unchoke profile -- jupyter execute book.ipynb"


def test_a_cell_that_ended_the_kernel_is_never_kept() -> None:
    assert verdict("computes", run=CellRun("died", error="the kernel was killed")).word == "optimise"


def test_output_that_fills_the_notebook_is_named() -> None:
    assert "of output into the notebook" in verdict("plots", run=ran(0.1, output=30 * MB)).reason


def test_the_same_cell_twice_is_once_too_many() -> None:
    text = "model = build(classes, size=224, pretrained=True)"
    found = judge(CellReading(4, text, ("builds a model",)), (), SETTING, earlier={text: 2})
    assert found == CellVerdict("eliminate", "the same as cell 2")
