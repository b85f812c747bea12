"""`notebook`: the table of cells, actions and plans; runs that are measured, cut short, stopped or fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.doctor.conftest import Typed, book_of

TRAINED = (
    "import torch\nfrom torchvision.datasets import ImageFolder\nloader = torch.utils.data.DataLoader(ImageFolder('hops/train'))"
)
EPOCHS = (
    "for epoch in range(30):\n    for x, y in loader:\n        loss = net(x).sum()\n        loss.backward(); optimizer.step()"
)
SLEEPS = ["#: Leaves", "import time", "time.sleep(0.2)\nprint('theirs')"]


def write(path: Path, *cells: str, outputs: dict[int, str] | None = None, tags: dict[int, str] | None = None) -> Path:
    book = json.loads(book_of(*cells))
    for number, text in (outputs or {}).items():
        book["cells"][number - 1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]
    for number, tag in (tags or {}).items():
        book["cells"][number - 1]["metadata"]["tags"] = [tag]
    path.write_text(json.dumps(book))
    return path


def cells_of(doctor: Typed, *words: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = doctor("notebook", *words, "--json").last["result"]["cells"]
    return found


def test_table_and_next_command(doctor: Typed, tmp_path: Path) -> None:
    path = write(tmp_path / "leaves.ipynb", *SLEEPS)
    answer = doctor("notebook", path)
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[-1].split(maxsplit=1) == ["next", f"unchoke notebook {path} --run"]
    assert [cell["cell"] for cell in cells_of(doctor, path)] == [2, 3]
    assert "| cell | what it does |" in doctor("notebook", path, "--markdown").stdout
    assert doctor("notebook", path, "--markdown", "--json").code == 2


def test_paths_and_jobs_of_a_plan(doctor: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "books").mkdir()
    for name in ("a", "b"):
        (tmp_path / "books" / "hops" / "train" / name).mkdir(parents=True)
        for number in range(50):
            (tmp_path / "books" / "hops" / "train" / name / f"{number}.jpg").touch()
    write(tmp_path / "books" / "hops.ipynb", TRAINED, EPOCHS)
    monkeypatch.chdir(tmp_path)
    cell = cells_of(doctor, "books/hops.ipynb")[1]
    assert (cell["action"], cell["command"]) == ("segment", "unchoke fit books/hops --cut none")
    assert any("exp_N" in step for step in cell["plan"]["steps"])
    frozen = "for p in net.parameters():\n    p.requires_grad = False"
    write(tmp_path / "books" / "hops.ipynb", TRAINED, frozen, EPOCHS)
    cell = cells_of(doctor, "books/hops.ipynb")[2]
    assert cell["command"] == "unchoke fit books/hops"
    assert "2 micro-jobs of 64 images (100 images" in cell["plan"]["steps"][0]


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("import torch\ndiscriminator = D()\nfake = discriminator(x)\ndiscriminator.train()", "generates images"),
        ("loader = other", "does not show class folders"),
    ],
)
def test_why_no_command_fits(doctor: Typed, tmp_path: Path, cell: str, why: str) -> None:
    found = cells_of(doctor, write(tmp_path / "a.ipynb", cell, EPOCHS))[1]
    assert (found["action"], found["command"]) == ("segment", "")
    assert why in found["plan"]["why_not"]


def test_time_from_saved_outputs(doctor: Typed, tmp_path: Path) -> None:
    fit = "import keras\nmodel = keras.Sequential([])\nmodel.fit(x, y, epochs=3)"
    log = "".join(f"Epoch {n}/3\n100/100 [==============================] - 2s 20ms/step - loss: 1.0\n" for n in (1, 2, 3))
    cell = cells_of(doctor, write(tmp_path / "a.ipynb", fit, outputs={1: log}))[0]
    assert (cell["seconds"], cell["seconds_from"]) == (6.0, "outputs")
    assert cell["action"] != "segment"
    long = log.replace(" 2s 20ms", " 900s 9s")
    assert cells_of(doctor, write(tmp_path / "a.ipynb", fit, outputs={1: long}))[0]["action"] == "segment"


KEPT = [
    "import shutil\nshutil.copy('best.h5', '/content/drive/MyDrive/best.h5')",
    "model = keras.Sequential([layers.Dense(4)])\nmodel.compile('adam', 'mse')",
    "import pandas as pd\nresults = pd.DataFrame(rows)\nresults.to_csv('results.csv')",
]


@pytest.mark.parametrize("cell", KEPT)
def test_state_and_copies_are_kept(doctor: Typed, tmp_path: Path, cell: str) -> None:
    """Making the model anew, saving and copying out are never advised against, however often they stand there."""
    fit = "history = model.fit(x, y, epochs=2)"
    path = write(tmp_path / "a.ipynb", "import keras\nfrom keras import layers", cell, fit, cell, fit)
    assert {cell["action"] for cell in cells_of(doctor, path)} <= {"keep", "optimise"}
    assert [one["action"] for one in cells_of(doctor, path) if one["source"] == cell] == ["keep", "keep"]


def test_repeated_cell(doctor: Typed, tmp_path: Path) -> None:
    look = "counts = table.groupby('label').size().sort_values(ascending=False)"
    same = cells_of(doctor, write(tmp_path / "a.ipynb", "table = read()", look, "z = 1", look))
    assert "repeats cell 2" in same[3]["reason"]
    changed = cells_of(doctor, write(tmp_path / "a.ipynb", "table = read()", look, "table = table.dropna()", look))
    assert changed[3]["action"] == "keep"


def test_other_languages_and_broken_cells(doctor: Typed, tmp_path: Path) -> None:
    found = cells_of(doctor, write(tmp_path / "a.ipynb", "%%R\nx <- 1", "# words", "%%html\n<b>x</b>", "def f(:"))
    assert [cell["does"] for cell in found] == ["R code, not read", "nothing", "HTML code, not read", "not read"]


def test_wrong_usage_and_broken_files(doctor: Typed, tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", *SLEEPS)
    (tmp_path / "train.py").write_text("a = 1")
    for words in (
        ["train.py"],
        [path, "--run", "--kernel", "fortran"],
        [path, "--run", "--cwd", tmp_path / "no"],
        [path, "--steps", 3],
    ):
        assert doctor("notebook", *words).code == 2, words
    assert doctor("notebook", path, "--html", path).code == 2
    (tmp_path / "half.ipynb").write_text("{")
    assert doctor("notebook", tmp_path / "half.ipynb").code == 1


def test_run_is_measured_and_kept(doctor: Typed, tmp_path: Path) -> None:
    path, page = write(tmp_path / "leaves.ipynb", *SLEEPS), tmp_path / "leaves.html"
    answer = doctor("notebook", path, "--run", "--html", page, "--out", tmp_path / "out", "--json")
    result = answer.last["result"]
    assert answer.code == 0, answer.stderr
    assert result["cells"][1]["seconds"] >= 0.2
    assert result["cells"][1]["run"]["output_bytes"] == len("theirs\n")
    assert json.loads(Path(result["file"]).read_text())["cells"][0]["cell"] == 2
    assert page.read_text().startswith("<!doctype html>")
    assert "theirs" not in answer.stderr


def test_failing_cell_ends_the_run(doctor: Typed, tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", "1/0", "raise KeyError", "b = 1", tags={1: "raises-exception"})
    for more, states in ([], ["failed", "failed", "not run"]), (["--keep-going"], ["failed", "failed", "ok"]):
        answer = doctor("notebook", path, "--run", "--out", tmp_path / "out", "--json", *more)
        assert (answer.code, [cell["run"]["status"] for cell in answer.last["result"]["cells"]]) == (1, states)
    alone = write(tmp_path / "b.ipynb", "1/0", tags={1: "raises-exception"})
    assert doctor("notebook", alone, "--run", "--out", tmp_path / "out").code == 0


def test_timeout(doctor: Typed, tmp_path: Path) -> None:
    path = write(tmp_path / "slow.ipynb", "import time\ntime.sleep(60)", "a = 1")
    answer = doctor("notebook", path, "--run", "--timeout", "1", "--out", tmp_path / "out", "--json")
    assert (answer.code, [cell["run"]["status"] for cell in answer.last["result"]["cells"]]) == (1, ["timeout", "not run"])


def test_killed_process_keeps_earlier_cells(doctor: Typed, tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", "a = 1", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "b = 1")
    answer = doctor("notebook", path, "--run", "--out", tmp_path / "out", "--json")
    assert (answer.code, [cell["run"]["status"] for cell in answer.last["result"]["cells"]]) == (1, ["ok", "died", "not run"])


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    mark = tmp_path / "running"
    path = write(
        tmp_path / "a.ipynb",
        "a = 1",
        f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(120)",
        "b = 2",
    )
    command = [sys.executable, "-m", "unchoke_doctor", "notebook", str(path), "--run", "--json", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        end_s = time.monotonic() + 60
        while not (mark.exists() and mark.read_text()) and time.monotonic() < end_s:
            time.sleep(0.05)
        cells = int(mark.read_text())
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=60)
    result = json.loads(stdout.splitlines()[-1])["result"]
    assert process.returncode == 130
    assert [cell["run"]["status"] for cell in result["cells"]] == ["ok", "interrupted", "not run"]
    with pytest.raises(ProcessLookupError):
        os.kill(cells, 0)
