"""`unchoke notebook` as it is typed: what goes where, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Type


import books

CELLS = ["#: Leaves", "import time", "time.sleep(0.2)\nprint('theirs')"]


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    books.own_kernel(tmp_path, monkeypatch)
    return books.write_book(tmp_path / "leaves.ipynb", CELLS)


def test_table_and_next_command(unchoke: Type, book: Path) -> None:
    answer = unchoke("notebook", book)
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[-1] == f"next     unchoke notebook {book} --run"


def test_json_has_every_cell_and_markdown_the_table(unchoke: Type, book: Path) -> None:
    result = unchoke("notebook", book, "--json").result
    assert [cell["cell"] for cell in result["cells"]] == [2, 3]
    assert result["cells"][0]["run"] is None
    assert "| cell | what it does |" in unchoke("notebook", book, "--markdown").stdout
    refused = unchoke("notebook", book, "--markdown", "--json")
    assert (refused.code, refused.last["ok"]) == (2, False)


def test_a_run_measures_and_keeps_its_figures(unchoke: Type, book: Path, tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    page = tmp_path / "leaves.html"
    answer = unchoke("notebook", book, "--run", "--html", page, "--out", tmp_path / "out", "--json")
    assert answer.code == 0, answer.stdout
    result = answer.result
    assert result["cells"][1]["run"]["wall_s"] >= 0.2
    assert result["cells"][1]["run"]["output_bytes"] == len("theirs\n")
    assert Path(result["file"]).is_relative_to(tmp_path / "out" / "logs" / "notebook")
    assert page.is_file()
    assert all("theirs" not in line.get("text", "") for line in answer.lines[:-1])


def test_a_cell_over_its_time_gives_1(unchoke: Type, tmp_path: Path, book: Path) -> None:
    pytest.importorskip("ipykernel")
    slow = books.write_book(tmp_path / "slow.ipynb", ["import time\ntime.sleep(60)", "a = 1"])
    answer = unchoke("notebook", slow, "--run", "--timeout", "1", "--out", tmp_path / "out", "--json")
    assert answer.code == 1
    assert [cell["run"]["status"] for cell in answer.last["result"]["cells"]] == ["timeout", "not run"]


def test_wrong_usage_gives_2_and_broken_files_1(unchoke: Type, tmp_path: Path, book: Path) -> None:
    assert unchoke("notebook", tmp_path / "none.ipynb").code == 2
    assert unchoke("notebook", tmp_path / "train.py").code == 2
    assert unchoke("notebook", book, "--run", "--kernel", "fortran").code == 2
    assert unchoke("notebook", book, "--run", "--cwd", tmp_path / "nowhere").code == 2
    (tmp_path / "half.ipynb").write_text("{")
    assert unchoke("notebook", tmp_path / "half.ipynb").code == 1


def test_ctrl_c_ends_the_kernel_and_gives_130(tmp_path: Path, book: Path) -> None:
    pytest.importorskip("ipykernel")
    mark = tmp_path / "running"
    cells = ["a = 1", f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(120)", "b = 2"]
    path = books.write_book(tmp_path / "long.ipynb", cells)
    command = [sys.executable, "-m", "unchoke", "notebook", str(path), "--run", "--json", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        kernel = _written(mark, process)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=60)
    result = json.loads(stdout.splitlines()[-1])["result"]
    assert process.returncode == 130
    assert [cell["run"]["status"] for cell in result["cells"]] == ["done", "interrupted", "not run"]
    assert result["cells"][1]["run"]["wall_s"] > 0.2
    assert _is_gone(kernel)


def _written(mark: Path, process: subprocess.Popen[str]) -> int:
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s and process.poll() is None:
        if mark.exists() and mark.read_text():
            return int(mark.read_text())
        time.sleep(0.05)
    raise AssertionError("the cell did not begin")


def _is_gone(process: int) -> bool:
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


TRAINED = (
    "import torch\nfrom torchvision.datasets import ImageFolder\nloader = torch.utils.data.DataLoader(ImageFolder('hops/train'))"
)
EPOCHS = (
    "for epoch in range(30):\n    for x, y in loader:\n        loss = net(x).sum()\n        loss.backward(); optimizer.step()"
)


def test_paths_are_of_the_folder_typed_in(unchoke: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "books").mkdir()
    books.write_book(tmp_path / "books" / "hops.ipynb", [TRAINED, EPOCHS])
    monkeypatch.chdir(tmp_path)
    result = unchoke("notebook", "books/hops.ipynb", "--json").result
    assert result["cells"][1]["command"] == "unchoke fit books/hops --cut none"
    assert len(result["notes"]) == 1


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("import torch\ndiscriminator = D()\nfake = discriminator(x)\ndiscriminator.train()", "it generates pictures"),
        ("loader = other", "does not show class folders"),
    ],
)
def test_no_command_where_none_would_work(unchoke: Type, tmp_path: Path, cell: str, why: str) -> None:
    path = books.write_book(tmp_path / "a.ipynb", [cell, EPOCHS])
    result = unchoke("notebook", path, "--json").result
    assert result["cells"][1]["verdict"] == "segment"
    assert all("unchoke fit" not in cell["command"] for cell in result["cells"])
    assert any(why in note for note in result["notes"])


def test_cells_in_other_languages(unchoke: Type, tmp_path: Path) -> None:
    path = books.write_book(tmp_path / "a.ipynb", ["%%R\nx <- 1", "# words", "%%html\n<b>x</b>"])
    result = unchoke("notebook", path, "--json").result
    assert [cell["does"] for cell in result["cells"]] == ["R code, not read", "has comments only", "HTML code, not read"]


def test_script_beside_the_notebook(unchoke: Type, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{TRAINED}\n{EPOCHS}\n")
    path = books.write_book(tmp_path / "a.ipynb", ["!python train.py"])
    (cell,) = unchoke("notebook", path, "--json").result["cells"]
    assert (cell["does"], cell["verdict"]) == ("trains, runs train.py", "segment")
    assert cell["command"] == f"unchoke fit {tmp_path}/hops --cut none"
