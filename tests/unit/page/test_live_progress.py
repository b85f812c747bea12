"""Live curves: what a command tells of itself in the workspace, and what the page makes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from pages import guest
from unchoke.core.events import Event, Note, Progress, StageDone, StageStarted, ignore
from unchoke.core.workspace import Workspace
from unchoke.curation.curate import curate
from unchoke.page.live_progress import LiveWatch, thin
from unchoke.runs.progress_log import FILE, ProgressLog, ProgressReader


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def progress(done: int, total: int = 100, stage: str = "train", **extra: object) -> Progress:
    return Progress(stage, done, total, "epochs", 2.0, (total - done) / 2.0, extra=extra)


def tell(workspace: Workspace, events: list[Event], *, every_s: float = 1.0) -> None:
    clock = Clock()
    log = ProgressLog(workspace, now=clock)
    listen = log.listening(ignore)
    for event in events:
        clock.now_s += every_s
        listen(event)
    log.close()


def test_what_is_told_is_read_back_as_it_grows(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    watch = LiveWatch(workspace)
    assert not watch.look()
    tell(
        workspace,
        [StageStarted("train"), Note("hidden"), *(progress(n, loss=1 / n, best_val_accuracy=n / 100) for n in range(1, 6))],
    )
    assert watch.look()
    assert not watch.look()
    assert watch.series["loss"] == [(float(n), 1 / n) for n in range(1, 6)]
    assert [title for title, _ in watch.charts()] == ["Training loss", "Best validation accuracy so far"]
    assert watch.stages["train"].words == ["5 of 100 epochs", "2.0 epochs/s", "47.5 s left"]


def test_stages_of_an_earlier_command_are_not_shown(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    tell(workspace, [StageStarted("train"), progress(5)])
    client = guest(tmp_path)
    with workspace.own():
        assert "5 of 100 epochs" in client.get("/").text
        (workspace.root / ".owner").write_text("1")
        assert "5 of 100 epochs" not in client.get("/").text


def test_jobs_done_and_left_are_counted(tmp_path: Path) -> None:
    tell(Workspace(tmp_path), [StageStarted("extract"), progress(640, 1000, "extract", jobs_done=10, jobs_total=16)])
    watch = LiveWatch(Workspace(tmp_path))
    watch.look()
    assert "10 of 16 jobs, 6 left" in watch.stages["extract"].words


def test_a_stage_that_is_done_says_what_it_took(tmp_path: Path) -> None:
    tell(Workspace(tmp_path), [StageStarted("extract"), progress(1, 2, "extract"), StageDone("extract", 3.25)])
    watch = LiveWatch(Workspace(tmp_path))
    watch.look()
    assert watch.stages["extract"].took == "3.2 s"


def test_another_command_begins_anew(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    tell(workspace, [progress(50, loss=0.5), progress(60, loss=0.4)])
    watch = LiveWatch(workspace)
    watch.look()
    tell(workspace, [progress(1, loss=2.0)])
    assert watch.look()
    assert watch.series["loss"] == [(1.0, 2.0)]


def test_command_without_counts_leaves_the_file(tmp_path: Path) -> None:
    tell(Workspace(tmp_path), [StageStarted("index"), StageDone("index", 1.0)])
    assert not (tmp_path / "logs").exists()


def test_lines_become_rarer_so_that_a_week_fits(tmp_path: Path) -> None:
    week_s, every_s = 7 * 24 * 3600, 0.25
    count = 100_000
    clock = Clock()
    log = ProgressLog(Workspace(tmp_path), now=clock)
    listen = log.listening(ignore)
    for number in range(count):
        clock.now_s += every_s if number < 4000 else (week_s - 1000) / count
        listen(progress(number, count))
    log.close()
    lines = (tmp_path / "logs" / FILE).read_text().count("\n")
    assert 500 < lines < 5000


def test_cut_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    tell(workspace, [progress(1), progress(2)])
    file = workspace.logs / FILE
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    reader = ProgressReader(workspace)
    assert [told.event.done for told in reader.read() if isinstance(told.event, Progress)] == [1]
    with file.open("ab") as opened:
        opened.write(whole[-10:] + b"no json\n")
    assert [told.event.done for told in reader.read() if isinstance(told.event, Progress)] == [2]


def test_unwritable_place_does_not_stop_the_command(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file, not a folder")
    tell(Workspace(tmp_path), [progress(1), progress(2)])


def test_many_points_are_thinned_and_the_last_one_stays() -> None:
    points = [(float(n), float(n)) for n in range(5000)]
    assert len(thin(points)) <= 402
    assert thin(points)[-1] == points[-1]
    assert thin(points[:10]) == points[:10]


def test_page_shows_a_command_while_it_owns_the_workspace(workspace: Path) -> None:
    tell(Workspace(workspace), [StageStarted("train"), *(progress(n, loss=1 / n) for n in range(1, 9))])
    client = guest(workspace)
    assert "at work" not in client.get("/").text
    with Workspace(workspace).own():
        page = client.get("/").text
    assert "is at work" in page
    assert "8 of 100 epochs" in page
    assert "Training loss" in page


def test_fit_tells_of_itself(workspace: Path) -> None:
    lines = (workspace / "logs" / FILE).read_text()
    assert '"stage": "extract"' in lines
    assert '"stage": "train"' in lines


def test_curate_tells_of_itself_too(workspace: Path) -> None:
    shutil.rmtree(workspace / "curation", ignore_errors=True)
    curate(out=workspace, on_event=ignore)
    lines = (workspace / "logs" / FILE).read_text()
    assert '"stage": "measure"' in lines
    assert '"stage": "train"' not in lines
