"""The right words on the right stream."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError
from unchoke.core.events import Chosen, Event, Note, Progress, StageDone, StageStarted
from unchoke.runs.report.console import Console, progress_line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that stands still until told otherwise."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def progress(done: int, **more: Any) -> Progress:
    return Progress("extract", done, 1393, "images", rate_per_s=312.4, left_s=1.0, **more)


def consoles(**options: Any) -> tuple[Console, io.StringIO, io.StringIO, Clock]:
    out, err, clock = io.StringIO(), options.pop("stderr", io.StringIO()), Clock()
    return Console(stdout=out, stderr=err, clock=clock, **options), out, err, clock


def test_the_progress_line_says_all() -> None:
    line = progress_line(progress(1088, failed=2, extra={"jobs_done": 17, "jobs_total": 22}))
    assert line == "extract    1,088/1,393 images  1.0 s left  2 failed  312 images/s  17/22 jobs"


def test_time_left_is_never_cut_off() -> None:
    event = progress(348, extra={"jobs_done": 17, "jobs_total": 22, "loading_share": 0.4})
    whole = progress_line(event, cells=120, bar="#.")
    assert "#####...............  348/1,393 images  1.0 s left  312 images/s  17/22 jobs  loading 40 %" in whole
    for cells in range(45, 120):
        line = progress_line(event, cells=cells, bar="#.")
        assert len(line) <= cells and line.startswith("extract ") and "348/1,393 images  1.0 s left" in line


def test_a_stage_ends_in_one_line_with_what_was_chosen_for_it() -> None:
    console, _, err, _ = consoles(stderr=Terminal())
    engine = Choice("engine", "openvino:bf16", "agrees with float32 torch on 32 of your pictures and ran 3× as fast on them")
    events = [
        *(Chosen(Choice("split", "70/15/15", "no split was given")), StageStarted("libraries"), StageDone("libraries", 3.0)),
        *(StageStarted("engine", "lite0"), Chosen(Choice("encode_batch", 8, "usual")), Chosen(engine), StageDone("engine", 4.5)),
        *(StageStarted("extract", "22 jobs"), progress(1393, failed=1), StageDone("extract", 17.0)),
        *(StageStarted("report"), StageDone("report", 0.1), Chosen(Choice("left", "over", "why not"))),
    ]
    for event in events:
        console.on_event(event)
    console.result("fit", {}, "done")
    lines = [line.rpartition("\x1b[2K")[2] for line in err.getvalue().split("\n")]
    assert lines == [
        "libraries      3.0 s",
        "engine         4.5 s  openvino:bf16, split 70/15/15, encode_batch 8",
        "extract       17.0 s  1,393 images, 312 images/s, 1 failed",
        "report        100 ms",
        "chosen     left over",
        "",
    ]


def test_verbose_shows_every_choice_with_its_reason() -> None:
    console, _, err, _ = consoles(verbose=True)
    for event in (StageStarted("engine", "lite0"), Chosen(Choice("device", "cpu", "no GPU")), StageDone("engine", 4.5)):
        console.on_event(event)
    assert err.getvalue().splitlines() == ["engine  lite0", "device = cpu  (no GPU)", "engine  done in 4.5 s"]


def test_sentences_are_folded_on_a_terminal_and_commands_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    words, command = "one two three four five six seven eight", "next    unchoke predict exp_1 PHOTOS"
    out = Terminal()
    Console(stdout=out, stderr=io.StringIO()).result("fit", {}, f"{words}\n{command}")
    assert out.getvalue() == f"one two three four five six\nseven eight\n{command}\n"
    plain = io.StringIO()
    Console(stdout=plain, stderr=io.StringIO()).result("fit", {}, words)
    assert plain.getvalue() == f"{words}\n"


def test_results_go_to_stdout_and_everything_else_to_stderr() -> None:
    console, out, err, _ = consoles()
    for event in (
        StageStarted("extract", "22 jobs"),
        Chosen(Choice("device", "cpu", "no GPU")),
        progress(1393),
        StageDone("extract", 4.5),
    ):
        console.on_event(event)
    console.result("fit", {"a": 1}, "accuracy 94 %")
    assert out.getvalue() == "accuracy 94 %\n"
    assert err.getvalue() == "extract    22 jobs\nextract        4.5 s  1,393 images, 312 images/s; device cpu\n"
    assert "\x1b" not in err.getvalue()


def test_progress_without_a_terminal() -> None:
    console, _, err, clock = consoles()
    for second in range(12):
        clock.now_s = float(second)
        console.on_event(progress(second * 100))
    console.on_event(StageDone("extract", 12.0))
    shown = [line.split()[1] for line in err.getvalue().splitlines()]
    assert shown == ["500/1,393", "1,000/1,393", "12.0"]
    assert err.getvalue().splitlines()[-1].endswith("1,100 of 1,393 images, 312 images/s")


def test_on_a_terminal_one_line_is_redrawn() -> None:
    console, _, err, clock = consoles(stderr=Terminal())
    for tick in range(4):
        clock.now_s = tick * 0.06
        console.on_event(progress(tick))
    console.on_event(Note("done"))
    drawn = err.getvalue()
    assert drawn.count("\r") == 3
    assert "\r\x1b[2K" in drawn and drawn.index("2/1,393") < drawn.index("note"), "wiped before the note is written"
    assert drawn.count("\n") == 1


def test_no_colour_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console, _, err, _ = consoles(stderr=Terminal())
    console.on_event(Note("careful", level="warning"))
    assert "33m" not in err.getvalue()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    console, _, err, _ = consoles(stderr=Terminal())
    console.on_event(Note("careful", level="warning"))
    assert "33m" in err.getvalue()


@pytest.mark.parametrize("stderr", [io.StringIO, Terminal])
def test_names_from_files_are_neither_markup_nor_control(stderr: type[io.StringIO]) -> None:
    console, out, err, _ = consoles(stderr=stderr())
    console.on_event(Note("[red]x[/red] \x1b]0;owned\x07"))
    console.result("check", {}, "a\x1b[2J.jpg\nb")
    assert "[red]x[/red] \\x1b]0;owned\\x07" in err.getvalue()
    assert out.getvalue() == "a\\x1b[2J.jpg\nb\n"


def test_json_gives_one_object_a_line_and_a_silent_stderr() -> None:
    console, out, err, clock = consoles(json=True)
    events: list[Event] = [
        StageStarted("extract"),
        progress(1),
        progress(2),
        progress(3),
        Chosen(Choice("device", "cpu", "no GPU")),
    ]
    for event in events:
        clock.now_s += 0.1
        console.on_event(event)
    console.result("fit", {"accuracy": float("nan")}, "ignored", ok=False)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line.get("event") for line in lines] == ["stage_started", "progress", "progress", "chosen", None]
    assert lines[2]["done"] == 3
    assert lines[3]["reason"] == "no GPU"
    assert lines[-1] == {"schema": 1, "command": "fit", "ok": False, "result": {"accuracy": None}}
    assert all(line["schema"] == 1 for line in lines)
    assert err.getvalue() == ""


def test_an_error_has_three_lines() -> None:
    error = DataError("2 files are damaged: a.jpg, b.jpg", code="of-a-test", why="they end early", try_="copy them again")
    console, out, err, _ = consoles()
    console.error("fit", error)
    assert (
        err.getvalue() == "error  2 files are damaged: a.jpg, b.jpg [of-a-test]\nwhy    they end early\ntry    copy them again\n"
    )
    assert out.getvalue() == ""


def test_an_error_in_json_is_the_last_line_of_stdout() -> None:
    console, out, _, _ = consoles(json=True)
    console.error("fit", DataError("w", code="of-a-test", why="y", try_="t"))
    error = {"code": "of-a-test", "what": "w", "why": "y", "try": "t", "exit_code": 1}
    assert json.loads(out.getvalue()) == {"schema": 1, "command": "fit", "ok": False, "error": error}


def test_quiet_keeps_results_and_warnings() -> None:
    console, out, err, _ = consoles(quiet=True)
    console.on_event(StageStarted("extract"))
    console.on_event(progress(1393))
    console.on_event(Note("3 files set aside", level="warning"))
    console.result("fit", {}, "done")
    assert err.getvalue() == "warning    3 files set aside\n"
    assert out.getvalue() == "done\n"


def test_a_stream_without_unicode_gets_escapes() -> None:
    code = "from unchoke.runs.report.console import Console; Console().result('x', {}, 'Äpfel ✓ \\udcff')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert done.stdout.decode("ascii").strip() == "\\xc4pfel \\u2713 \\udcff"


def test_importing_the_console_loads_nothing_heavy() -> None:
    code = (
        "import sys, unchoke.runs.report.console; sys.exit(bool({'rich', 'jinja2', 'numpy', 'torch', 'PIL'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
