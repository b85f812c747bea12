"""`%load_ext unchoke`: the cell magic `%%choke`, which runs a cell, says what it cost, and what in it will choke.

In comes a cell of a running IPython; it is run in the user's namespace as always, its value shown, its exceptions raised. After
it: seconds, CPU seconds, peak memory, waiting for data where it trained with torch, and what lint finds in it, read together with
the cells run before. Nothing stays installed between cells.
"""

from __future__ import annotations

import ast
import json
import sys
from typing import Any

from unchoke.code.source import parse_source
from unchoke.core.findings import Finding
from unchoke.linting.lint_engine import find_chokes
from unchoke.notebooks.cell_meter import Meter
from unchoke.notebooks.notebook_text import render_choke
from unchoke.reports.console import Console

_MOST_CELLS = 500


def register(shell: Any) -> None:
    """Give `shell` the magic."""

    def choke(_line: str, cell: str) -> None:
        """Run this cell; say what it cost and what in it will choke."""
        __tracebackhide__ = True
        run_choked(shell, cell)

    shell.register_magic_function(choke, magic_kind="cell", magic_name="choke")


def run_choked(shell: Any, cell: str) -> None:
    """Run `cell` in `shell`, then report, also when it raises."""
    __tracebackhide__ = True  # a traceback is about the cell, not about us
    parts = _compiled(shell, cell)
    meter = Meter()
    meter.begin()
    try:
        for part in parts:
            exec(part, shell.user_ns)
    finally:
        figures = meter.end()
        text = render_choke(figures, [finding.to_dict() for finding in lint_cell(shell, cell)])
        Console(stdout=sys.stdout).result("choke", {}, text)


def _compiled(shell: Any, cell: str) -> list[Any]:
    """The cell as IPython would run it: magics made Python, the value of a last expression shown unless a semicolon ends it."""
    __tracebackhide__ = True
    python = shell.transform_cell(cell)
    name = shell.compile.cache(python, shell.displayhook.prompt_count, raw_code=cell)
    tree = shell.transform_ast(shell.compile.ast_parse(python, filename=name))
    shown: list[ast.stmt] = []
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not shell.displayhook.semicolon_at_end_of_expression(cell):
        shown = [tree.body.pop()]
    parts = [shell.compile(tree, name, "exec"), shell.compile(ast.Interactive(shown), name, "single")]
    return parts[: 1 + len(shown)]


def lint_cell(shell: Any, cell: str) -> list[Finding]:
    """What lint finds in this cell, the cells run before it taken as the notebook's first."""
    before = [str(text) for text in shell.history_manager.input_hist_raw[1:]][-_MOST_CELLS:]
    if before and before[-1].strip().endswith(cell.strip()):
        before.pop()  # this very cell
    sources = [*before, f"%%choke\n{cell}"]
    cells = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in sources]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    source = parse_source("session.ipynb", json.dumps(book).encode("utf-8"))
    return [finding for finding in find_chokes(source)[0] if finding.cell == len(sources)]
