"""One rule run over pieces of code, small training code with a known choke point, and a rule with a mechanical fix."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unchoke.code.program import Program
from unchoke.code.source import parse_source
from unchoke.linting.fixing import fix_source
from unchoke.linting.lint_engine import LintFinding, lint_source
from unchoke.linting.rule import Edit, Hit, Rule
from unchoke.linting.rules import LoadedRule, load_rule

CODE = "parsed-per-sample"
LINE, COLUMN = 10, 12  # of the choke point in BAD; the column counts from 1
BAD = """\
import pandas

from torch.utils.data import Dataset

class Leaves(Dataset):
  def __init__(self, names):
    self.names = names
  def __getitem__(self, index):
    name = self.names[index]
    return pandas.read_csv("leaves.csv").loc[name]
"""
GOOD = "import os\n\nprint(os.getcwd())\n"
BROKEN = "def broken(:\n    pass\n"


@dataclass(frozen=True)
class OneRule:
    """A rule by its code, asked about pieces of code; `head` stands before each of them."""

    code: str
    head: str = ""

    def found(self, source: str) -> list[LintFinding]:
        """What it finds in this script as it is, without the head."""
        found, problems = lint_source(parse_source("train.py", source.encode()), [load_rule(self.code)])
        assert not problems
        return found

    def whole(self, body: str) -> str:
        """The script to be read; code that begins on a line of its own is moved to the left."""
        return self.head + (textwrap.dedent(body) if body.startswith("\n") else body)

    def lines(self, body: str) -> list[int]:
        return [item.place.line for item in self.found(self.whole(body))]

    def texts(self, body: str) -> list[str]:
        """The lines found, as text."""
        source = self.whole(body)
        return [source.splitlines()[item.place.line - 1].strip() for item in self.found(source)]

    def marked(self, body: str) -> list[int]:
        """The lines that end with `# here`, counted with the head."""
        return [number for number, line in enumerate(self.whole(body).splitlines(), start=1) if line.endswith("# here")]

    def fixed(self, source: str) -> str:
        """The script after its mechanical fixes."""
        data = source.encode()
        done = fix_source(parse_source("train.py", data), data, self.found(source))
        return done.data.decode() if done else source


def each(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`pytest.mark.parametrize` as one test: every row is checked, and all that fail are shown. Rows share the fixtures."""
    keys, given = ((names,) if isinstance(names, str) else names), list(rows)

    def wrap(check: Callable[..., None]) -> Callable[..., None]:
        def check_all(**fixtures: Any) -> None:
            assert given
            failed = []
            for row in given:
                values = row.values if hasattr(row, "marks") else (row,) if isinstance(names, str) else row  # of pytest.param
                try:
                    check(**dict(zip(keys, values, strict=True)), **fixtures)
                except Exception as error:
                    error.add_note(f"row: {row!r}")
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(given)} rows", failed)

        signature = inspect.signature(check)
        rest = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        check_all.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        check_all.__name__, check_all.__doc__, check_all.__module__ = check.__name__, check.__doc__, check.__module__
        check_all.__dict__.update(pytestmark=getattr(check, "pytestmark", []))
        return check_all

    return wrap


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
    Rule(
        "resume",
        "resume",
        "something slow, with | in it",
        gain="10 ×",
        claim="Planted chokes",
        fixable=True,
        code="no-checkpoint",
    ),
    _slow_to_fast,
    "Something slow.\n\nIts page.",
)
