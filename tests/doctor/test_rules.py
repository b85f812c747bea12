"""What each rule finds, what it passes over, and what saved outputs change: `specimens/` is the contract, one file per rule.

A specimen begins with `# ===`, its cells with `#%%`, the outputs of a cell with `#>`. `# expect: choke code` marks a line that
must be found, with its kind and what it rests on, `# expect: further` another place of the same finding; every other line must
not be. Specimens without outputs are read as a script and as a notebook, and must get the same verdict.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from unchoke_doctor.lint import CODES, run_lint

SPECIMENS = Path(__file__).parent / "specimens"
MARK = re.compile(r"\s*# expect: (.*)$")
Verdict = tuple[int, int, str]
"""Cell, line in it, and what is expected there."""


@dataclass
class Specimen:
    code: str
    name: str
    cells: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    expected: set[Verdict] = field(default_factory=set)

    @property
    def has_outputs(self) -> bool:
        return any(self.outputs)

    def script(self) -> str:
        return "\n".join(self.cells) + "\n"

    def book(self) -> str:
        cells = [
            {
                "cell_type": "code",
                "metadata": {},
                "execution_count": 1,
                "source": text.splitlines(keepends=True),
                "outputs": [{"output_type": "stream", "name": "stdout", "text": printed}] if printed else [],
            }
            for text, printed in zip(self.cells, self.outputs, strict=True)
        ]
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})

    def in_script(self) -> set[Verdict]:
        """The expected verdicts with lines counted through all cells."""
        starts = [0]
        for text in self.cells:
            starts.append(starts[-1] + text.count("\n") + 1)
        return {(0, starts[cell - 1] + line, what) for cell, line, what in self.expected}


def read_specimens(code: str) -> list[Specimen]:
    found: list[Specimen] = []
    for part in re.split(r"^# === ", (SPECIMENS / f"{code}.py").read_text(), flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        one = Specimen(code, name)
        for text in re.split(r"^#%%\n", body, flags=re.MULTILINE):
            lines = [line for line in text.rstrip("\n").split("\n") if not line.startswith("#>")]
            if not any(line.strip() for line in lines):
                continue
            number = len(one.cells) + 1
            one.expected |= {(number, at, mark[1]) for at, line in enumerate(lines, 1) if (mark := MARK.search(line))}
            one.cells.append("\n".join(MARK.sub("", line) for line in lines))
            one.outputs.append("\n".join(line[3:] for line in text.split("\n") if line.startswith("#>")))
        found.append(one)
    return found


ALL = [one for code in CODES for one in read_specimens(code)]


def verdicts(path: Path, code: str) -> set[Verdict]:
    result = run_lint([str(path)], select=[code])
    assert not result.problems, result.problems[0].message
    found = {(one.cell or 0, one.line or 0, f"{one.kind} {one.basis}") for one in result.findings}
    further = [other for one in result.findings for other in one.evidence.get("further", ())]
    return found | {(other["cell"] or 0, other["line"], "further") for other in further}


def test_every_rule_has_specimens() -> None:
    assert {path.stem for path in SPECIMENS.glob("*.py")} == set(CODES)
    for code in CODES:
        some = [one for one in ALL if one.code == code]
        assert any(one.expected for one in some) and any(not one.expected for one in some), code


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.code}: {one.name}")
def test_specimen_in_a_notebook(tmp_path: Path, one: Specimen) -> None:
    file = tmp_path / "book.ipynb"
    file.write_text(one.book())
    if one.code == "unpicklable-dataset" and not one.has_outputs:
        pytest.skip("where a class is defined is the point of this rule")
    assert verdicts(file, one.code) == one.expected


@pytest.mark.parametrize("one", [one for one in ALL if not one.has_outputs], ids=lambda one: f"{one.code}: {one.name}")
def test_specimen_as_a_script(tmp_path: Path, one: Specimen) -> None:
    file = tmp_path / "train.py"
    file.write_text(one.script())
    assert verdicts(file, one.code) == one.in_script()
