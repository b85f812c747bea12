"""Notebooks and scripts of every kind become Python with its places; broken and hostile ones are named and passed over."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.doctor.conftest import SLOW, book_of

from unchoke_doctor.code.magics import plain_python, split_lines, written_file
from unchoke_doctor.code.outputs import read_outputs
from unchoke_doctor.code.source import parse_source
from unchoke_doctor.errors import UsageError
from unchoke_doctor.lint import CODES, _examine, run_lint

# Magics -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("!pip install -q timm", "pass"),
        ("%matplotlib inline", "pass"),
        ("files = !ls data", "files = []"),
        ("where = %pwd", "where = None"),
        ("model.fit?", "pass"),
        ("??model", "pass"),
        ("x = a % b", "x = a % b"),
        ("if x != 3: pass", "if x != 3: pass"),
        ("x = 'a?'", "x = 'a?'"),
        ("!pip install a \\\n    b\nx = 1", "pass\n\nx = 1"),
        ("for e in a:\n    if e:\n        !date\n    x = 1", "for e in a:\n    if e:\n        pass\n    x = 1"),
        ('t = """\n%cd a\n!ls\n"""\n!ls "open (\nz = (1\n    % b)', 't = """\n%cd a\n!ls\n"""\npass\nz = (1\n    % b)'),
        ("%%time\nx = 1", "\nx = 1"),
        ("%%bash\nls", "\n"),
        ("    x = 1\n    y = 2", "x = 1\ny = 2"),
    ],
)  # fmt: skip
def test_magics_become_python(line: str, kept: str) -> None:
    assert plain_python(line).text == kept
    ast.parse(kept)


def test_timed_python_stays_at_its_column() -> None:
    text = "%time history = model.fit(x)"
    assert ast.parse(plain_python(text).text).body[-1].col_offset == text.index("history")


@pytest.mark.parametrize(
    ("text", "name", "append"),
    [
        ("%%writefile train.py\nx", "train.py", False),
        ("\n%%writefile -a a/b.py\nx", "a/b.py", True),
        ('%%file "a b.py"', "a b.py", False),
    ],
)
def test_written_file_is_named(text: str, name: str, append: bool) -> None:
    found = written_file(text)
    assert found is not None and (found.name, found.append) == (name, append)
    assert written_file("# %%writefile a.py") is None


def test_cells_of_other_languages_survive(tmp_path: Path) -> None:
    others = [f"%%{name}\n<b>if x then (</b>" for name in ("bash", "html", "R", "javascript", "sql", "writefile a.txt", "cython")]
    others += ["%%unknown_magic\nnot python (", "#:# Text", "%%capture\n!nvidia-smi"]
    file = tmp_path / "book.ipynb"
    file.write_text(book_of(*others, SLOW))
    result = run_lint([str(file)], select=["no-workers"])
    assert ([(one.cell, one.line) for one in result.findings], result.problems) == ([(len(others) + 1, 7)], [])


@pytest.mark.parametrize(
    "make",
    [
        lambda text: {"worksheets": [{"cells": [{"cell_type": "code", "input": text}]}], "nbformat": 3},
        lambda text: {"cells": [{"cell_type": "code", "source": text.splitlines(True)}], "nbformat": 5},
    ],
)
def test_every_format_of_notebooks_is_read(tmp_path: Path, make: Any) -> None:
    file = tmp_path / "book.ipynb"
    file.write_text(json.dumps(make(SLOW)), encoding="utf-8-sig")
    assert [one.line for one in run_lint([str(file)], select=["no-workers"]).findings] == [7]


def test_times_of_cells_are_kept() -> None:
    times = {"shell.execute_reply": "2024-05-01T10:02:00Z", "iopub.execute_input": "2024-05-01T10:00:00Z"}
    cells = [
        {"cell_type": "code", "source": "x", "metadata": {"execution": times}},
        {"cell_type": "code", "source": "x", "metadata": {"executionInfo": {"elapsed": 1500}}},
        {"cell_type": "code", "source": "x", "metadata": {"execution": {"iopub.execute_input": 7}}},
    ]
    source = parse_source("a.ipynb", json.dumps({"cells": cells}).encode())
    assert [cell.seconds for cell in source.cells] == [120.0, 1.5, None]


# Hostile and broken -------------------------------------------------------------------------------------------------------

DEEP = 3000
HOSTILE: dict[str, bytes] = {
    "empty.py": b"",
    "nul.py": b"import torch\x00\nx = 1\n",
    "not_utf8.py": b"name = '\xff\xfe\xfa'\n",
    "wrong_coding.py": b"# coding: no-such-code\nx = 1\n",
    "utf16.py": "x = 'ü'\n".encode("utf-16"),
    "bom.py": b"\xef\xbb\xbfimport torch\n",
    "python2.py": b"print 'a'\n",
    "deep.py": b"x = " + b"(" * DEEP + b")" * DEEP,
    "deep_calls.py": b"x = " + b"f(" * 90 + b"1" + b")" * 90,
    "deep_loops.py": "\n".join(" " * i + "for a in b:" for i in range(90)).encode() + b"\n" + b" " * 90 + b"pass\n",
    "long_chain.py": b"x = a" + b".b()" * DEEP,
    "long_sum.py": b"x = 1" + b" + 1" * DEEP,
    "long_line.py": b"x = '" + b"a" * 10_000_000 + b"'\n",
    "names.py": b"a = b\nb = a\nclass A(A): pass\nclass B(C): pass\nclass C(B): pass\ndef f(f=f): return f(f)\nself.a = self\n",
    "returns.py": b"def f(): return g()\ndef g(): return f()\nDataLoader(f(), num_workers=g())\n",
    "import_itself.py": b"import import_itself\nfrom import_itself import *\nx = import_itself.x\n",
    "cycle_a.py": b"from cycle_b import x\nx = x\n",
    "cycle_b.py": b"from cycle_a import x\nfrom cycle_a import *\nx = x\n",
    "far.py": b"from ..... import x\nfrom . import *\nimport a.b.c.d\n",
    "empty.ipynb": b"",
    "list.ipynb": b"[1, 2]",
    "deep.ipynb": b"[" * 100_000,
    "no_cells.ipynb": b'{"metadata": 1, "worksheets": [3, {"cells": 4}]}',
    "odd_cells.ipynb": json.dumps({"cells": [1, None, [], {"cell_type": "code"}, {"cell_type": "code", "source": [1, "x"]},
                                             {"cell_type": "code", "source": "x = (", "outputs": [1, {"text": 3, "data": []}]},
                                             {"cell_type": "code", "source": "x", "metadata": [], "outputs": {}}]}).encode(),
    "cut.ipynb": book_of(SLOW).encode()[:200],
    "other.ipynb": b'{"cells": [{"cell_type": "code", "source": "x <- 1"}], "metadata": {"kernelspec": {"name": "ir"}}}',
    "data_in_a_cell.ipynb": book_of("x = '" + "a" * 2_000_000 + "'").encode(),
    "surrogate.ipynb": b'{"cells": [{"cell_type": "code", "source": "x = \'\\ud800\'\\nDataLoader(ImageFolder(x))"}]}',
}  # fmt: skip


def test_hostile_files_are_read_or_named(tmp_path: Path) -> None:
    for name, data in HOSTILE.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link.py").symlink_to(tmp_path / "train.py")
    (tmp_path / "dangling.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "around").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "train.py").write_text(SLOW)
    result = run_lint([str(tmp_path)], notes=True)
    assert not [problem for problem in result.problems if problem.internal]
    assert {Path(one.path or "").name for one in result.findings} >= {"train.py"}
    assert {"nul.py", "python2.py", "empty.ipynb", "list.ipynb", "deep.ipynb", "cut.ipynb", "other.ipynb"} <= {
        Path(problem.path).name for problem in result.problems
    }


def test_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(UsageError) as error:
        run_lint([str(tmp_path / "pipe.py")])
    assert error.value.code == "not-a-file"


def check(path: str, data: bytes) -> None:
    """No rule fails, and every place is in the file."""
    source = parse_source(path, data)
    read = _examine(source, CODES, set(CODES))
    assert not [problem for problem in read.problems if problem.internal], read.problems
    heights = {cell.number: len(split_lines(cell.text)) for cell in source.cells}
    assert all(1 <= item.place.line <= heights[item.place.cell] for item in read.found)


SEEDS = [path.read_bytes() for path in sorted((Path(__file__).parent / "specimens").glob("*.py"))]
SEEDS += [book_of(*seed.decode().split("#%%\n")).encode() for seed in SEEDS]
JUNK = [
    b"",
    b"\n",
    b"(",
    b'"',
    b"\x00",
    b"\xff",
    b"\\",
    b"*",
    b"    ",
    b"lambda: (yield)\n",
    b"{",
    b"]",
    b"@",
    b"\r",
    b"%%",
    b"!",
]


@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 300), st.sampled_from([*JUNK, None])), min_size=1, max_size=4),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_files_are_read(seed: bytes, cuts: list[tuple[float, int, bytes | None]]) -> None:
    for at, length, junk in cuts:
        begin = int(at * len(seed))
        piece = seed[begin : begin + length]
        seed = seed[:begin] + (piece * 2 if junk is None else junk) + seed[begin + length :]
    check("train.py", seed)
    check("book.ipynb", seed)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["cells", "source", "input", "cell_type", "outputs", "text", "data", "metadata"]), inner
        )
    ),
    max_leaves=8,
)
LINES = [line + "\n" for seed in SEEDS[:16] for line in seed.decode().split("\n")]
CODE = st.lists(st.sampled_from(LINES), max_size=12).map("".join)
CELL = ODD | st.fixed_dictionaries(
    {"cell_type": st.sampled_from(["code", "code", "markdown", "other"])},
    optional={"source": CODE | st.lists(CODE, max_size=3), "input": CODE, "outputs": ODD | st.just([{"text": "Epoch 1: 3 s"}]),
              "metadata": ODD, "language": st.text(max_size=6)},
)  # fmt: skip


@given(st.lists(CELL, max_size=5), st.sampled_from([2, 3, 4, 5, "x", None]), ODD)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_odd_notebooks_are_read(cells: list[Any], version: Any, metadata: Any) -> None:
    book: dict[str, Any] = {"nbformat": version, "metadata": metadata, "cells": cells}
    if version == 3:
        book = {"nbformat": 3, "worksheets": [{"cells": cells}, metadata]}
    check("book.ipynb", json.dumps(book).encode())


# Saved outputs ------------------------------------------------------------------------------------------------------------

FASTAI = (
    "<table><thead><tr><th>epoch</th><th>train_loss</th><th>time</th></tr></thead>"
    "<tr>\n<td>0</td>\n<td>0.52</td>\n<td>01:40</td></tr><tr><td>1</td><td>0.41</td><td>01:38</td></tr></table>"
)
HUGGING_FACE = "<progress></progress> [ 500/2500 10:00 < 40:00, 0.83 it/s, Epoch 1/5]"


@pytest.mark.parametrize(
    ("printed", "epoch_s"),
    [
        ("Epoch 1/3\n 62/445 [===>....] - ETA: 14:03 - loss: 3.3\n", 979.4),
        ("Epoch 1/3\n62/445 ━━━━━ 14:03 2s/step - loss: 3.3\n", 979.4),
        (" 10%|#    | 45/450 [01:00<09:00,  1.3s/it]\n", 600.0),
        ("10 epochs completed in 0.5 hours.\n", 180.0),
        ({"text/plain": "<IPython.core.display.HTML object>", "text/html": FASTAI}, 100.0),
        ({"text/plain": "<IPython.core.display.HTML object>", "text/html": HUGGING_FACE}, 600.0),
        ("Accuracy 0.9\n", None),
    ],
)
def test_epoch_times_of_saved_outputs(printed: str | dict[str, str], epoch_s: float | None) -> None:
    output = {"text": printed} if isinstance(printed, str) else {"data": printed}
    book = {"cells": [{"cell_type": "code", "source": "train()", "outputs": [output]}]}
    seen = read_outputs(parse_source("book.ipynb", json.dumps(book).encode())).epoch_s()
    assert seen == (pytest.approx(epoch_s, abs=2.1) if epoch_s else None)


def test_printed_length_of_a_data_set_in_any_language() -> None:
    code = 'print(f"Imágenes: {len(train_data)}", flush=True)\nprint("Bilder", len(files))'
    book = {"cells": [{"cell_type": "code", "source": code, "outputs": [{"text": "Imágenes: 1200\nBilder 300\n"}]}]}
    assert read_outputs(parse_source("book.ipynb", json.dumps(book).encode())).images == 1200
