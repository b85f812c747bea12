"""Code beside a file is borrowed: names resolve through it, nothing is reported in it, and what is not there stays unknown."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import books
from unchoke.code.neighbours import with_neighbours
from unchoke.code.program import Program
from unchoke.code.source import is_borrowed, read_source
from unchoke.linting.lint_engine import lint

DATA = """
import torch
from PIL import Image
SIZE = 64
def load(path):
    return Image.open(path).resize((SIZE, SIZE))
class Leaves(torch.utils.data.Dataset):
    def __getitem__(self, i):
        return load(self.files[i])
def unused():
    import json
    return json
if __name__ == "__main__":
    print(Leaves())
"""
TRAIN = """
import torch
from torch.utils.data import DataLoader
{imports}
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader({dataset}, batch_size=8)
for epoch in range(3):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def program(path: Path) -> Program:
    return Program(with_neighbours(read_source(path)))


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("imports", "dataset"),
    [
        ("from data import Leaves", "Leaves()"),
        ("from data import *", "Leaves()"),
        ("import data", "data.Leaves()"),
        ("import data as d", "d.Leaves()"),
        ("from .data import Leaves", "Leaves()"),
    ],
)
def test_a_class_of_the_file_beside_is_known(tmp_path: Path, imports: str, dataset: str) -> None:
    write(tmp_path, data=DATA, train=TRAIN.format(imports=imports, dataset=dataset))
    read = program(tmp_path / "train.py")
    (call,) = read.calls_to("DataLoader")
    owner = read.assigned_class(call.args[0])
    assert owner is not None and owner.name == "Leaves"
    assert read.unread == ()
    assert {item.rule.code for item in lint([tmp_path / "train.py"]).found} >= {"no-workers"}


def test_only_what_is_used_is_borrowed(tmp_path: Path) -> None:
    write(tmp_path, data=DATA, train="from data import Leaves\nLeaves()\n")
    read = program(tmp_path / "train.py")
    assert set(read.functions) == {"load"}
    assert not read.calls_to("print")


def test_a_renamed_function_is_followed(tmp_path: Path) -> None:
    write(tmp_path, data=DATA, train="from data import load as read_picture\nread_picture('a.png')\n")
    read = program(tmp_path / "train.py")
    call = next(node for node in read.nodes(ast.Call) if read.text(node.func) == "read_picture")
    function = read.function_of(call)
    assert function is not None and function.name == "load"


def test_borrowed_code_is_reported_in_its_own_file(tmp_path: Path) -> None:
    bad = DATA.replace("return load(self.files[i])", "import os; return os.path.exists(self.files[i])")
    write(tmp_path, data=bad, train="from data import Leaves\ndata = Leaves()\n")
    alone = lint([tmp_path / "train.py"], select=["stat-per-sample"])
    assert alone.found == []
    both = lint([tmp_path], select=["stat-per-sample"])
    assert {Path(item.finding.path or "").name for item in both.found} == {"data.py"}


def test_the_files_own_names_come_first(tmp_path: Path) -> None:
    write(tmp_path, data="def load(x):\n    return 1\n", train="from data import *\ndef load(x):\n    return 2\nload(3)\n")
    read = program(tmp_path / "train.py")
    assert not is_borrowed(read.place(read.functions["load"]))


def test_a_module_of_a_module_is_read_too_and_circles_end(tmp_path: Path) -> None:
    write(
        tmp_path,
        a="from b import f\nf()\n",
        b="from c import g\ndef f():\n    return g()\n",
        c="from a import x\ndef g():\n    return 3\n",
    )
    assert set(program(tmp_path / "a.py").functions) == {"f", "g"}


def test_a_package_is_found_from_inside(tmp_path: Path) -> None:
    package = tmp_path / "leaves"
    package.mkdir()
    write(package, __init__="", data=DATA, train="from leaves.data import Leaves\nfrom leaves import data\nLeaves()\n")
    assert "Leaves" in program(package / "train.py").classes


@pytest.mark.parametrize("text", ["def broken(:", "x = " + "1" * 400_000])
def test_what_cannot_be_read_stays_unknown(tmp_path: Path, text: str) -> None:
    write(tmp_path, data=text, train="from data import *\n")
    (piece,) = program(tmp_path / "train.py").unread
    assert (piece.kind, piece.name) == ("star", "data")


def test_notebook_knows_scripts_beside_it_and_in_cells(tmp_path: Path) -> None:
    write(tmp_path, setup="SIZE = 3\ndef load(x):\n    return x\n")
    cells = [
        "%run setup.py\nload(SIZE)",
        "%%writefile train.py\ndef go():\n    pass",
        "import train\ntrain.go()",
        "!python train.py",
        "%run no.py",
    ]
    path = books.write_book(tmp_path / "a.ipynb", cells)
    read = program(path)
    assert [(piece.kind, piece.name) for piece in read.unread] == [("run", "no.py")]
    assert {"load", "go"} <= set(read.functions)
    (load,) = read.calls_to("load")
    assert read.value(load.args[0]) == 3


def test_written_script_is_separate_until_imported(tmp_path: Path) -> None:
    path = books.write_book(tmp_path / "a.ipynb", ["%%writefile train.py\ndef go():\n    pass", "go()"])
    assert program(path).functions == {}


def test_libraries_are_not_looked_for(tmp_path: Path) -> None:
    write(tmp_path, torch="def load(x):\n    return x\n", train="import torch\ntorch.load('a')\n")
    assert program(tmp_path / "train.py").functions == {}


def test_names_made_in_branches_and_long_chains(tmp_path: Path) -> None:
    chain = "if x == 0:\n    pass\n" + "".join(f"elif x == {number}:\n    pass\n" for number in range(600))
    text = "try:\n    from fast import load\nexcept ImportError:\n    def load(x):\n        return x\n" + chain
    write(tmp_path, data=text, train="from data import load\nload(1)\n")
    assert "load" in program(tmp_path / "train.py").functions


def test_script_run_as_a_process_is_separate(tmp_path: Path) -> None:
    write(tmp_path, train="def go():\n    pass\n")
    source = with_neighbours(read_source(books.write_book(tmp_path / "a.ipynb", ["!python train.py", "!python no.py"])))
    assert [(script.name, script.is_notebook) for script in source.beside] == [("train.py", False)]
    assert Program(source).functions == {}
