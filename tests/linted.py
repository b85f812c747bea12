"""Small training code with a known choke point, and a rule with a mechanical fix, for tests of what shows or repairs them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from unchoke.code.program import Program
from unchoke.linting.rule import Edit, Hit, Rule
from unchoke.linting.rules import LoadedRule

CODE = "stat-per-sample"
LINE, COLUMN = 10, 12  # of the choke point in BAD; the column counts from 1
BAD = """\
import os

from torch.utils.data import Dataset


class Leaves(Dataset):
    def __init__(self, names):
        self.names = names
    def __getitem__(self, index):
        if os.path.exists(self.names[index]):
            return self.names[index]
"""
GOOD = "import os\n\nprint(os.getcwd())\n"
BROKEN = "def broken(:\n    pass\n"


def notebook(*cells: str) -> str:
    """A notebook of a Markdown cell and these cells of code: the first is cell 2."""
    code = [
        {"cell_type": "code", "source": text.splitlines(keepends=True), "metadata": {}, "outputs": [], "execution_count": None}
        for text in cells
    ]
    first = {"cell_type": "markdown", "source": ["# Leaves\n"], "metadata": {}}
    return json.dumps({"cells": [first, *code], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def folder_of_three(folder: Path) -> Path:
    """One script, one notebook and one broken script; a choke point in each of the first two."""
    (folder / "broken.py").write_text(BROKEN)
    (folder / "leaves.ipynb").write_text(notebook("import os\n", BAD))
    (folder / "train.py").write_text(BAD)
    return folder


def _slow_to_fast(program: Program) -> Iterator[Hit]:
    for name in program.nodes(ast.Name):
        if isinstance(name, ast.Name) and name.id == "slow":
            place = program.place(name)
            yield Hit(name, "`slow` is slow", fix="write fast", edit=Edit(place, "fast"))


FIXABLE = LoadedRule(
    Rule("no-checkpoint", "resume", "resume", "something slow, with | in it", gain="10 ×", claim="Planted chokes", fixable=True),
    _slow_to_fast,
    "Something slow.\n\nIts page.",
)
