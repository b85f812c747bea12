"""The mechanical fixes of the rules themselves, on whole files: they parse, they are final, nothing else changes by a byte."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.linted import FIXABLE as RENAMING
from tests.linted import OneRule, each

from unchoke.code.source import parse_python, parse_source
from unchoke.linting.fixing import FileRepair, apply_edits, line_diff, repair
from unchoke.linting.lint_engine import lint, lint_source, source_files
from unchoke.linting.rule import Edit
from unchoke.linting.rules import CODES, LoadedRule, load_rule

ROOT = Path(__file__).resolve().parents[3]
SPECIMENS = ("tests/specimens/fixing", "tests/specimens/lint")
CORPUS = ("benches/lint/corpus/seen_torch", "benches/lint/corpus/seen_keras", "benches/chokes")

# One script with a fix of every rule that has one, in the words people use.
SCRIPT = textwrap.dedent('''
    """Blätter: Erkennung von Rost – erster Versuch"""
    import torch, torchvision
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    device = torch.device("mps")
    größe = 224
    model = torchvision.models.resnet18()
    data = TensorDataset(torch.randn(8, 3, größe, größe), torch.arange(8))
    torch.save(model.state_dict(), "gewichte_ü.pt")
    model.load_state_dict(torch.load("gewichte_ü.pt", map_location="cpu"))  # übernommen
    loader = DataLoader(data, batch_size=8, shuffle=True, pin_memory=True)  # «schnell»
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())

    def evaluate(model, loader):
    \tmodel.eval()
    \tnah = 0
    \tfor x, y in loader:
    \t\tnah += (model(x).argmax(1) == y).sum().item()
    \treturn nah

    for epoch in range(3):
    \tsumme, verläufe = 0, []
    \tfor x, y in loader:
    \t\tloss = criterion(model(x), y)
    \t\toptimizer.zero_grad(); loss.backward(); optimizer.step()
    \t\tsumme += loss; verläufe.append(loss)  # é
    \tprint("Σ", summe.item() / len(loader), float(sum(verläufe)), evaluate(model, loader))
''').lstrip()
EXPECTED = {
    'map_location="cpu")': 'map_location="cpu", weights_only=True)',
    "pin_memory=True": "pin_memory=torch.cuda.is_available()",
    "summe += loss": "summe += loss.detach()",
    "append(loss)": "append(loss.detach())",
}
REPAIRED = SCRIPT
for _old, _new in EXPECTED.items():
    REPAIRED = REPAIRED.replace(_old, _new)


@cache
def fixable_rules() -> list[LoadedRule]:
    return [loaded for loaded in map(load_rule, CODES) if loaded.rule.fixable]


def repaired(path: str, data: bytes) -> FileRepair | None:
    return repair(path, data, fixable_rules())


@each(
    ("ends", "encoding", "last"),
    [
        ("\n", "utf-8", ""),
        ("\n", "utf-8-sig", "\n"),
        ("\n", "utf-8", "\n\n\x0c\n"),
        ("\r\n", "utf-8-sig", ""),
        ("\r\n", "utf-8", "\n"),
        ("\r\n", "utf-8-sig", "\n\n\x0c\n"),
        ("\r", "utf-8", ""),
        ("\r", "utf-8", "\n"),
        ("\r", "utf-8-sig", "\n\n\x0c\n"),
    ],
)
def test_only_the_fixed_pieces_of_a_script_change(ends: str, encoding: str, last: str) -> None:
    before, after = ((text.rstrip("\n") + last).replace("\n", ends).encode(encoding) for text in (SCRIPT, REPAIRED))
    result = repaired("train.py", before)
    assert result is not None
    assert result.data == after
    assert repaired("train.py", after) is None


def test_a_script_in_another_encoding_keeps_it() -> None:
    text = f"# -*- coding: latin-1 -*-\n{saved('größe.pt')}\nm.load_state_dict(torch.load('größe.pt'))\n"
    result = repaired("train.py", text.encode("latin-1"))
    assert result is not None
    assert result.data == text.replace("pt'))", "pt', weights_only=True))").encode("latin-1")


def saved(path: str) -> str:
    """A program that writes the weights it then loads."""
    return f"import torch\nm = torch.nn.Linear(1, 1)\ntorch.save(m.state_dict(), '{path}')"


def book(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """With all that a notebook has besides its code."""
    return {
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3 – ü"},
            "colab": {"provenance": []},
            "widgets": {"source": "torch.load('x')"},
        },
        "cells": [
            {
                "cell_type": "markdown",
                "metadata": {},
                "source": ["# Rost\n", "![Bild](attachment:a.png) torch.load('x')"],
                "attachments": {"a.png": {"image/png": "iVBO=="}},
            },
            *cells,
        ],
        "nbformat": 4,
    }


def cell(source: str | list[str]) -> dict[str, Any]:
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["torch.load('x')\n", "loss 0.3 <é>\n"]},
        {"output_type": "error", "evalue": "\u001b[31m"},
    ]
    return {
        "metadata": {"tags": ["ü"], "scrolled": True},
        "outputs": outputs,
        "execution_count": 7,
        "cell_type": "code",
        "id": "a1b2",
        "source": source,
    }


@each(
    ("indent", "ascii_only", "in_lines", "end"),
    [
        (None, True, True, ""),
        (None, False, False, "\n"),
        (1, True, False, ""),
        (1, False, True, "\n"),
        (2, True, True, "\n"),
        (2, False, False, ""),
        ("\t", True, False, "\n"),
        ("\t", False, True, ""),
    ],
)
def test_only_the_fixed_pieces_of_a_notebook_change(indent: int | str | None, ascii_only: bool, in_lines: bool, end: str) -> None:
    head, tail = "%%time\n!ls -l\n", "\nfiles = !ls *.pt"
    before, after = (
        json.dumps(
            book(
                [
                    cell(written.splitlines(keepends=True) if in_lines else written)
                    for written in ("x = 1 < 2", head + text + tail, "")
                ]
            ),
            indent=indent,
            ensure_ascii=ascii_only,
        )
        + end
        for text in (SCRIPT, REPAIRED)
    )
    result = repaired("train.ipynb", before.encode())
    assert result is not None
    assert result.data.decode() == after
    assert repaired("train.ipynb", after.encode()) is None


@pytest.mark.parametrize("in_lines", [True, False])
def test_escapes_of_other_writers_stay(in_lines: bool) -> None:
    """Colab writes `<` as \\u003c, others `/` as `\\/`; what is not fixed keeps its spelling."""
    lines = [
        saved("a<b.pt") + "\n",
        "if 1 < 2 > 0 and 'a/b':  # «é»\n",
        "    m.load_state_dict(torch.load('a<b.pt'))\n",
        "print('<é>')\n",
    ]
    text = json.dumps(book([cell(lines if in_lines else "".join(lines))]), indent=2, ensure_ascii=False)
    before = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("a/b", "a\\/b")
    result = repaired("train.ipynb", before.encode())
    assert result is not None
    assert result.data.decode() == before.replace("load('a\\u003cb.pt'", "load('a\\u003cb.pt', weights_only=True")


def test_a_list_keeps_its_own_spacing_and_its_own_pieces() -> None:
    source = [saved("a.pt") + "\nx = 1\n", "m.load_state_dict(torch.load('a.pt'))\n", "y = 2"]
    for separators in ((",", ":"), (" , ", " : ")):
        before = json.dumps(book([cell(source)]), separators=separators)
        result = repaired("train.ipynb", before.encode())
        assert result is not None
        assert result.data.decode() == before.replace("load('a.pt'", "load('a.pt', weights_only=True")


def test_equal_cells_are_fixed_in_their_place() -> None:
    same = cell("m.load_state_dict(torch.load('a.pt'))")
    before = json.dumps(book([cell(saved("a.pt")), same, cell("x = 1"), same, same]), indent=1)
    result = repaired("train.ipynb", before.encode())
    assert result is not None
    read = json.loads(result.data)
    assert [one["source"].count("weights_only") for one in read["cells"][2:]] == [1, 0, 1, 1]


@pytest.mark.parametrize("folders", [SPECIMENS, CORPUS], ids=["specimens", "corpus"])
def test_fixes_in_whole_files(folders: tuple[str, ...]) -> None:
    """Each file parses as before, changes only at its edits and needs no second run; the specimens show each rule's fix."""
    shown: set[str] = set()

    @each("path", source_files([ROOT / folder for folder in folders]))
    def check_files(path: Path) -> None:
        data = path.read_bytes()
        if (result := repaired(str(path), data)) is not None:
            check_fix(str(path), data, result)
            shown.update(item.finding.code for item in result.applied)

    check_files()
    fixable = {loaded.rule.code for loaded in fixable_rules()}
    assert shown == fixable if folders == SPECIMENS else shown


def check_fix(path: str, data: bytes, result: FileRepair) -> None:
    source, now = parse_source(path, data), parse_source(path, result.data)
    assert [problem.message for problem in now.problems] == [problem.message for problem in source.problems]
    left = {(item.finding.code, item.hit.message) for item in result.found if item.hit.all_edits}
    assert not left, "a second run would fix more"
    assert len(now.cells) == len(source.cells)
    edits = [edit for item in result.applied for edit in item.hit.all_edits]
    for before, after in zip(source.cells, now.cells, strict=True):
        own = [edit for edit in edits if edit.place.cell == before.number]
        assert after.text == apply_edits(before.text, own)
        touched = {line for edit in own for line in range(edit.place.line, (edit.place.end_line or edit.place.line) + 1)}
        kept = [line for number, line in enumerate(before.text.splitlines(), start=1) if number not in touched]
        assert all(line in after.text.splitlines() for line in kept)
    if source.is_notebook:
        assert without_sources(result.data) == without_sources(data)


def without_sources(data: bytes) -> Any:
    read = json.loads(data)
    for one in read["cells"]:
        if one["cell_type"] == "code":
            one["source"] = ""
    return read


def _parses(code: str) -> bool:
    """As a statement, as what follows a name, as arguments, as a block or a heading without its body; `…` is anything."""
    ways = ("{}", "x{}", "f({})", "f({}0)", "{} pass", "{}: pass", "def f():\n    {}")
    return any(parse_python(way.format(code.replace("…", "_")))[0] is not None for way in ways)


@pytest.mark.parametrize(
    "folders",
    [("tests/specimens/lint",), ("benches/lint/corpus", "benches/lint/newcomers")],
    ids=["specimens", "corpus"],
)
def test_code_that_is_shown_parses(folders: tuple[str, ...]) -> None:
    """What stands between backticks in a fix, but for commands and magics, and the author's lines with what is suggested."""
    found = lint([ROOT / folder for folder in folders], nits=True).found
    shown = {code for item in found for code in re.findall(r"`([^`]+)`", item.hit.fix)}
    broken = [code for code in shown if not code.startswith(("%", "!", "--", "unchoke ")) and not _parses(code)]
    assert len(shown) > 100
    assert not broken
    assert all(bool(line_diff(item)) == bool(item.hit.all_edits or item.hit.suggestion) for item in found)


def test_a_suggestion_that_would_not_parse_is_not_shown() -> None:
    source = parse_source("train.py", b"slow = 1\n")
    [item] = lint_source(source, [RENAMING])[0]
    broken = replace(item, hit=replace(item.hit, edit=Edit(item.place, "fast(")))
    assert line_diff(item) == ["- slow = 1", "+ fast = 1"]
    assert line_diff(broken) == []


def test_a_long_function_is_not_cut_off_in_the_fix() -> None:
    head = "import tensorflow as tf\ndata = tf.data.Dataset.list_files('*.jpg')\ndata = data.map(lambda path: {})\n"
    for body in (
        "tf.io.decode_jpeg(path, channels=3)",
        "tf.io.decode_jpeg(tf.io.read_file(path), channels=3)",
    ):
        [item] = OneRule("no-workers").found(head.format(body))
        assert all(_parses(code) for code in re.findall(r"`([^`]+)`", item.hit.fix))
