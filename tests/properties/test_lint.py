"""Whatever a file holds, lint reads it: no input makes it raise, and every place it names is in the file."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unchoke.code.facts.devices import plain_device, runs_on_cpu
from unchoke.code.magics import plain_python, split_lines
from unchoke.code.program import Program
from unchoke.code.source import parse_source
from unchoke.linting.lint_engine import chosen_codes, lint_source
from unchoke.linting.rules import load_rule

CORPUS = Path(__file__).resolve().parents[2] / "benches" / "lint" / "corpus" / "seen_torch"
SNIPPETS = [
    "import torch, os, cv2\nfrom torch.utils.data import *\n",
    "class D(Dataset):\n    def __getitem__(self, i):\n        return cv2.imread(self.files[i])\n",
    "for epoch in range(10):\n    for x in dl:\n        loss.backward()\n        total += loss.item()\n",
    "!pip install x\n",
    "%%time\n",
    "x = !ls\n",
    "model.eval()\n",
    "ds = tf.data.Dataset.from_tensor_slices(p).map(f).batch(3)\n",
    "x = (\n",
    '"""',
    "def f(:\n",
    "    y = 2\n",
    "\x00",
    "é = 'ü'\r\n",
    "with torch.no_grad():\n    model(x)\n",
    "lambda: (yield)\n",
    "self.a = self\n",
    "class A(A): pass\n",
    "def f(f=f): return f(f)\n",
    "a = b; b = a\n",
    "*a, b = c\n",
    "match x:\n    case {'a': 1, **rest}: pass\n",
    "f(**{**a, 'num_workers': 2}, *b)\n",
    "train_dl = DataLoader(**kw)\nkw = dict(kw)\n",
    "async def g():\n    async for x in y: await z\n",
    "x: int\n",
    "del x\n",
    "try:\n    pass\nexcept* OSError:\n    pass\n",
]
CELL_TEXT = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(SNIPPETS), max_size=6).map("".join))
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["cells", "source", "input", "cell_type", "x"]), inner)
    ),
    max_leaves=8,
)
CELL = st.one_of(
    ODD,
    st.fixed_dictionaries(
        {"cell_type": st.sampled_from(["code", "markdown", "raw", "heading", "other"])},
        optional={"source": CELL_TEXT | st.lists(CELL_TEXT, max_size=3), "input": CELL_TEXT, "language": st.text(max_size=6)},
    ),
)


@cache
def rules() -> list[Any]:
    return [load_rule(code) for code in chosen_codes([], [])]


def check(path: str, data: bytes) -> None:
    source = parse_source(path, data)
    found, problems = lint_source(source, rules())
    assert not [problem for problem in problems if problem.internal], problems
    heights = {cell.number: len(split_lines(cell.text)) for cell in source.cells}
    for item in found:
        assert 1 <= item.place.line <= heights[item.place.cell]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_as_a_script_and_as_a_notebook(data: bytes) -> None:
    check("a.py", data)
    check("a.ipynb", data)


@given(CELL_TEXT)
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_as_a_script(text: str) -> None:
    check("a.py", text.encode("utf-8", errors="surrogatepass"))


@given(st.lists(CELL, max_size=5), st.sampled_from([2, 3, 4, 5, "x", None]), ODD)
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_notebook_of_any_format_is_read(cells: list[Any], version: Any, metadata: Any) -> None:
    book: dict[str, Any] = {"nbformat": version, "metadata": metadata}
    book["cells" if version != 3 else "worksheets"] = cells if version != 3 else [{"cells": cells}, metadata]
    check("a.ipynb", json.dumps(book).encode())


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_notebooks_with_cut_or_doubled_pieces_are_read(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["grape_star.ipynb", "hop_mildew_aliases.ipynb", "scene_windows.py", "lit_wheat.py"]))
    text = (CORPUS / name).read_text(encoding="utf-8")
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.integers(0, 400)))
        text = text[:begin] + data.draw(st.sampled_from(["", "\n", "(", '"', text[begin:end] * 2])) + text[end:]
    check(name, text.encode())


@given(CELL_TEXT)
@settings(max_examples=300, deadline=None)
def test_taking_magics_out_keeps_lines_and_python(text: str) -> None:
    plain = plain_python(text)
    assert len(split_lines(plain.text)) == len(split_lines(text))


@given(st.sampled_from([snippet for snippet in SNIPPETS if not snippet.startswith(("!", "%", "x = !"))]))
def test_what_is_python_already_is_not_touched(text: str) -> None:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return
    assert plain_python(text).text.splitlines() == text.splitlines()


@given(CELL_TEXT)
@settings(max_examples=100, deadline=None)
def test_every_answer_about_every_node_can_be_asked(text: str) -> None:
    program = Program(parse_source("a.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": text}]}).encode()))
    facts = program.facts
    for node in program.nodes(ast.AST):
        program.place(node), program.name(node), program.value(node), program.made_by(node), program.assigned_class(node)
        (
            facts.in_training(node),
            facts.in_evaluation(node),
            facts.in_per_sample(node),
            facts.is_conditional(node),
            facts.no_grad(node),
        )
    assert plain_device(program) in ("", "cpu", "mps")
    assert isinstance(runs_on_cpu(program), bool)
    assert len(facts.loaders) + len(facts.frozen) + len(facts.optimizers) + len(facts.fits) >= 0
