"""Bytes of a notebook or script to cells, each with its syntax tree where it has one.

In come bytes, of any kind: broken JSON, broken Python, any encoding, notebooks of format 2 to 5. Out goes a `SourceFile`, always:
what cannot be read is named in `problems` and passed over. A script that `%%writefile` cells of a notebook write is a source of
its own among its `scripts`, on the cells and lines where it stands. Knows nothing of rules or of the meaning of the code.
"""

from __future__ import annotations

import ast
import errno
import io
import json
import re
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from unchoke_doctor.code.magics import FILE_CELLS, PlainCell, plain_python, split_lines, written_file, written_python
from unchoke_doctor.errors import UsageError

LONGEST_CELL, LONGEST_LINE = 1_000_000, 200  # characters; what is longer, also line by line, is data and not code
_LONGEST_OUTPUT = 200_000
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x08")  # colours and steps back
_TAGS = re.compile(r"<[^<>]*>")
Kind = Literal["code", "markdown", "raw"]
_SHORT_NAMES = frozenset({"r", "sql", "html", "css", "js", "svg"})
_NESTED_IMPORT = re.compile(r"^[ \t]+(?:from|import)\s|[:;][ \t]*(?:from|import)\s", re.MULTILINE)


@dataclass(frozen=True, order=True)
class CodePlace:
    """Where in the source: the cell (None in a script), lines from 1, columns from 0, counted in characters."""

    cell: int | None
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0

    def shifted(self, lines: int) -> CodePlace:
        return replace(self, line=self.line + lines, end_line=(self.end_line or self.line) + lines)


@dataclass(frozen=True)
class SourceProblem:
    """Something that could not be read, and where."""

    cell: int | None
    line: int | None
    message: str


@dataclass(frozen=True, eq=False)
class Cell:
    """One cell, or a whole script (then `number` is None). `python` has as many lines as `text`, each kept thing at its place."""

    number: int | None
    kind: Kind
    text: str
    python: str = ""
    tree: ast.Module | None = None
    problem: SourceProblem | None = None
    executed: bool = False
    count: int | None = None
    language: str = ""
    indent: int = 0
    outputs: str = ""
    """What the cell printed when it was last run, as text."""
    seconds: float | None = None
    """How long it ran then, where the notebook keeps the times."""
    tags: tuple[str, ...] = ()

    @cached_property
    def lines(self) -> list[str]:
        return split_lines(self.text)

    @cached_property
    def python_lines(self) -> list[str]:
        return split_lines(self.python)

    @cached_property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        """The import statements, those inside functions too."""
        body = self.tree.body if self.tree is not None and self.executed else []
        nested = _NESTED_IMPORT.search(self.python) is not None
        parts = (part for statement in body for part in (ast.walk(statement) if nested else (statement,)))
        return [part for part in parts if isinstance(part, ast.Import | ast.ImportFrom)]


@dataclass(frozen=True, eq=False)
class SourceFile:
    """A file as read. `problems` holds those of its cells and those of the file itself.

    `scripts` are the programs that its cells write, each with the name it is written under as its `name`.
    """

    path: str
    is_notebook: bool
    cells: tuple[Cell, ...]
    problems: tuple[SourceProblem, ...] = ()
    encoding: str = "utf-8"
    scripts: tuple[SourceFile, ...] = ()
    name: str = ""
    kernel: str = ""
    """The Jupyter kernel that a notebook names."""


def read_source(path: str | Path) -> SourceFile:
    """Read the file at `path`. A file that cannot be opened is a usage error; what is in it never is."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise OSError(errno.ENXIO, "it is a folder, a pipe or a device")
        data = Path(path).read_bytes()
    except OSError as error:
        code = "no-such-file" if isinstance(error, FileNotFoundError) else "unreadable-file"
        why, try_ = error.strerror or str(error), "give the path of a .py or .ipynb file"
        raise UsageError(f"cannot read {path}", code=code, why=why, try_=try_) from error
    return parse_source(str(path), data)


def parse_source(path: str, data: bytes) -> SourceFile:
    """Cells of a notebook (by its name, or because it is a JSON object with cells) or of a script."""
    if path.lower().endswith(".ipynb"):
        return _notebook(path, data)
    text, encoding = _decoded(data)
    cell = _code_cell(None, text, language="python", count=None)
    return SourceFile(path, False, (cell,), (cell.problem,) if cell.problem else (), encoding)


def _decoded(data: bytes) -> tuple[str, str]:
    """Text by byte order mark or coding line; what is no such text is read as Latin-1, which reads anything."""
    for mark, encoding in ((b"\xff\xfe\x00\x00", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(encoding, errors="replace"), encoding
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        return data.decode(encoding), encoding
    except (SyntaxError, UnicodeDecodeError, LookupError, ValueError):
        return data.decode("latin-1"), "latin-1"


def _notebook(path: str, data: bytes) -> SourceFile:
    try:
        book = json.loads(_decoded(data)[0].removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        return SourceFile(path, True, (), (SourceProblem(None, line, f"not a notebook: {_short(error)}"),))
    book = book if isinstance(book, dict) else {}
    found = list(_raw_cells(book))
    if not found and not ("cells" in book or "worksheets" in book):
        return SourceFile(path, True, (), (SourceProblem(None, None, "not a notebook: no cells in it"),))
    language = _language(book)
    cells = tuple(_cell(number, raw, language) for number, raw in enumerate(found, start=1))
    scripts = tuple(_written_scripts(path, cells))
    problems = [problem for part in (*cells, *(cell for script in scripts for cell in script.cells)) if (problem := part.problem)]
    if language != "python":
        problems.insert(0, SourceProblem(None, None, f"its language is {language_name(language)}, not Python: not read"))
    kernel = _member(book, "metadata", "kernelspec", "name")
    return SourceFile(path, True, cells, tuple(problems), scripts=scripts, kernel=kernel if isinstance(kernel, str) else "")


def _written_scripts(path: str, cells: tuple[Cell, ...]) -> Iterator[SourceFile]:
    """The Python files that cells write: one written twice is what was written last, one that is added to is all its parts."""
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        written = written_file(cell.text) if cell.language in FILE_CELLS else None
        if written is not None and written.is_python:
            python = written_python(cell.text)
            tree, problem = parse_python(python, cell.number)
            part = Cell(cell.number, "code", cell.text, python, tree, problem, tree is not None, cell.count, "python")
            parts[written.name] = [*(parts.get(written.name, ()) if written.append else ()), part]
    for name, found in parts.items():
        yield SourceFile(path, False, tuple(found), name=name)


def language_name(language: str) -> str:
    """How people spell it: `R`, `HTML`, `Julia`."""
    return language.upper() if language in _SHORT_NAMES else language.capitalize() if language != "bash" else language


def _raw_cells(book: dict[str, Any]) -> Iterator[Any]:
    """Format 4 and later keep cells at the top, 2 and 3 in worksheets."""
    if isinstance(book.get("cells"), list):
        yield from book["cells"]
        return
    for sheet in _listed(book.get("worksheets")):
        yield from _listed(_member(sheet, "cells"))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _member(value: Any, *keys: str) -> Any:
    """What lies under these keys in dictionaries of dictionaries; None where one is missing or something else."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _joined(text: Any) -> str:
    """A text that may be kept as a list of its lines."""
    return "".join(part for part in _listed([text] if isinstance(text, str) else text) if isinstance(part, str))


def _language(book: dict[str, Any]) -> str:
    """`python` unless the notebook says otherwise."""
    for keys in (("language_info", "name"), ("kernelspec", "language")):
        name = _member(book, "metadata", *keys)
        if isinstance(name, str) and name:
            return "python" if "python" in name.lower() else name.lower()
    name = _member(book, "metadata", "kernelspec", "name")
    return name if name in ("ir", "julia", "bash", "octave", "scala", "ijavascript") else "python"


def _cell(number: int, raw: Any, language: str) -> Cell:
    if not isinstance(raw, dict):
        return Cell(number, "raw", "", problem=SourceProblem(number, None, "not a cell"))
    kind = raw.get("cell_type")
    text = _joined(raw.get("source", raw.get("input")))
    if kind != "code":
        return Cell(number, "raw" if kind == "raw" else "markdown", text)
    own = raw.get("language")
    count = raw.get("execution_count", raw.get("prompt_number"))
    cell = _code_cell(
        number,
        text,
        language=own.lower() if isinstance(own, str) and own else language,
        count=count if isinstance(count, int) else None,
    )
    tags = tuple(tag for tag in _listed(_member(raw, "metadata", "tags")) if isinstance(tag, str))
    return replace(cell, outputs=_outputs(raw), seconds=_seconds(raw), tags=tags)


def _outputs(raw: dict[str, Any]) -> str:
    """What a cell printed: streams, plain results, tables and errors; of a line that was rewritten the last state counts."""
    parts: list[str] = []
    for output in _listed(raw.get("outputs")):
        text = _joined(_member(output, "text") or _member(output, "data", "text/plain") or _member(output, "evalue"))[
            :_LONGEST_OUTPUT
        ]
        if text.startswith("<IPython.core.display.HTML"):  # tables of progress
            table = " ".join(_joined(_member(output, "data", "text/html"))[:_LONGEST_OUTPUT].split())
            text = _TAGS.sub(" ", table.replace("</tr>", "\n"))
        parts.append(text if text.endswith("\n") else f"{text}\n")
    lines = _ESCAPES.sub("", "".join(parts)[:_LONGEST_OUTPUT]).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _seconds(raw: dict[str, Any]) -> float | None:
    """How long the cell ran, by the times that JupyterLab, VS Code or Colab keep in its metadata."""
    times = _member(raw, "metadata", "execution") or {}
    begin = _moment(_member(times, "iopub.execute_input") or _member(times, "shell.execute_reply.started"))
    end = _moment(_member(times, "shell.execute_reply") or _member(times, "iopub.status.idle"))
    if begin is not None and end is not None and end >= begin:
        return end - begin
    elapsed = _member(raw, "metadata", "executionInfo", "elapsed")
    return elapsed / 1000 if isinstance(elapsed, int | float) and elapsed >= 0 else None


def _moment(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _code_cell(number: int | None, text: str, *, language: str, count: int | None) -> Cell:
    if "python" not in language:
        return Cell(number, "code", text, language=language, count=count)
    if len(text) > max(LONGEST_CELL, LONGEST_LINE * text.count("\n")):
        long = SourceProblem(number, None, f"{len(text):,} characters in one piece: taken as data, not read")
        return Cell(number, "code", text, problem=long, count=count, language="python")
    plain = plain_python(text) if number is not None else PlainCell(text, "python")
    tree, problem = parse_python(plain.text, number)
    if tree is None and number is None:  # a script with magics left in it
        other = plain_python(text)
        found, _ = parse_python(other.text)
        tree, problem, plain = (tree, problem, plain) if found is None else (found, None, other)
    if plain.is_python:
        return Cell(number, "code", text, plain.text, tree, problem, tree is not None, count, "python", plain.indent)
    guessed = tree if plain.language.startswith("python?") else None
    python, language = plain.text if guessed is not None else "", plain.language.removeprefix("python?")
    return Cell(number, "code", text, python, guessed, None, guessed is not None, count, language)


def parse_python(python: str, number: int | None = None) -> tuple[ast.Module | None, SourceProblem | None]:
    """The tree, or what is wrong; never an exception and never a warning, whatever the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(python), None
    except SyntaxError as error:
        return None, SourceProblem(number, error.lineno, f"does not parse: {_short(error)}")
    except (ValueError, RecursionError, MemoryError, OverflowError, SystemError) as error:
        return None, SourceProblem(number, None, f"does not parse: {_short(error)}")


def _short(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError | json.JSONDecodeError) else str(error)
    return " ".join(str(text or type(error).__name__).split())[:120]
