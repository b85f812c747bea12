"""Magics and shell lines go, everything else stays where it was."""

from __future__ import annotations

import ast

import pytest

from unchoke.code.magics import WrittenFile, plain_python, script_runs, split_lines, written_file, written_python


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("!pip install -q timm", "pass"),
        ("%matplotlib inline", "pass"),
        ("%cd /content", "pass"),
        ("files = !ls data", "files = []"),
        ("where = %pwd", "where = None"),
        ("model.fit?", "pass"),
        ("??model", "pass"),
        ("x = a % b", "x = a % b"),
        ("if x != 3: pass", "if x != 3: pass"),
        ("x = 'a?'", "x = 'a?'"),
        ("y = d['!'] % 2", "y = d['!'] % 2"),
    ],
)
def test_a_line_becomes_python(line: str, kept: str) -> None:
    assert plain_python(line).text == kept
    ast.parse(kept)


def test_timed_python_is_kept_at_its_column() -> None:
    text = "%time history = model.fit(x)\n%timeit -n 1 -r 2 next(iter(ds))"
    first, second = ast.parse(plain_python(text).text).body[1::2]
    assert (first.lineno, first.col_offset) == (1, text.index("history"))
    assert (second.lineno, second.col_offset) == (2, "%timeit -n 1 -r 2 ".__len__())


def test_an_indented_shell_line_keeps_its_block() -> None:
    text = "for e in range(3):\n    if e == 2:\n        !date\n    x = 1"
    assert ast.parse(plain_python(text).text)


def test_signs_inside_strings_and_brackets_are_no_magic() -> None:
    text = 'text = """\n%matplotlib inline\n!ls\n"""\nvalue = (a\n    % b)\n!ls "unbalanced (\nz = 1'
    assert split_lines(plain_python(text).text)[:6] == split_lines(text)[:6]
    assert ast.parse(plain_python(text).text).body[-1].lineno == 8


def test_a_shell_line_goes_on_after_a_backslash() -> None:
    plain = plain_python("!pip install a \\\n    b \\\n    c\nx = 1")
    assert split_lines(plain.text) == ["pass", "", "", "x = 1"]


@pytest.mark.parametrize("magic", ["%%time", "%%capture out", "%%timeit -n 3", "\n\n%%time"])
def test_cell_magics_that_run_python_keep_the_cell(magic: str) -> None:
    plain = plain_python(f"{magic}\nx = 1")
    assert plain.is_python
    assert len(split_lines(plain.text)) == len(split_lines(f"{magic}\nx = 1"))
    assert ast.parse(plain.text).body


def test_a_cell_indented_as_a_whole_is_read_as_ipython_does() -> None:
    plain = plain_python("    x = 1\n    y = 2")
    assert plain.indent == 4
    assert len(ast.parse(plain.text).body) == 2


@pytest.mark.parametrize(
    ("text", "name", "append"),
    [
        ("%%writefile train.py\nx = 1", "train.py", False),
        ("\n%%writefile -a src/train.py\nx = 1", "src/train.py", True),
        ('%%file "my script.py"\nx = 1', "my script.py", False),
        ("%%writefile\nx = 1", "", False),
    ],
)
def test_the_file_that_a_cell_writes_is_named(text: str, name: str, append: bool) -> None:
    assert written_file(text) == WrittenFile(name, append)


@pytest.mark.parametrize("text", ["x = 1", "%%bash\nls", "# %%writefile a.py", ""])
def test_other_cells_write_no_file(text: str) -> None:
    assert written_file(text) is None


def test_what_a_cell_writes_stays_on_its_lines() -> None:
    assert split_lines(written_python("\n%%writefile a.py\nx = 1\n    y")) == ["", "", "x = 1", "    y"]


@pytest.mark.parametrize(
    ("text", "language", "runs"),
    [
        ("%run other.py --fast", "python", [(1, "other.py", True)]),
        ("x = 1\n%run -i 'my other.ipynb'", "python", [(2, "my other.ipynb", True)]),
        ("%run other", "python", [(1, "other.py", True)]),
        ("!python train.py --out a.py", "python", [(1, "train.py", False)]),
        ("!cd src && CUDA_VISIBLE_DEVICES=0 python3 -u train.py", "python", [(1, "train.py", False)]),
        ("out = !torchrun --nproc_per_node 2 train.py", "python", [(1, "train.py", False)]),
        ("%%bash\n# python no.py\npython a.py; python b.py", "bash", [(3, "a.py", False), (3, "b.py", False)]),
        ("!cat train.py", "python", []),
        ("!python -m pip install x", "python", []),
        ("name = 'python train.py'", "python", []),
        ("!python train.py 'open", "python", [(1, "train.py", False)]),
    ],
)
def test_the_scripts_that_lines_run_are_named(text: str, language: str, runs: list[tuple[int, str, bool]]) -> None:
    assert [(run.line, run.name, run.shares) for run in script_runs(text, language)] == runs
