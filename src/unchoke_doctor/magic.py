"""`%load_ext unchoke`: the cell magic `%%choke` runs a cell, shows what it cost, and lints it together with the cells run
before it.
"""

from __future__ import annotations

import ast
import json
from typing import Any

from unchoke_doctor.finding import Finding
from unchoke_doctor.units import format_bytes, format_seconds

_MOST_CELLS = 500


def register(shell: Any) -> None:
    """Give an IPython `shell` the magic."""

    def choke(_line: str, cell: str) -> None:
        """Run this cell; show what it cost and what slows it down."""
        __tracebackhide__ = True
        run_choked(shell, cell)

    shell.register_magic_function(choke, magic_kind="cell", magic_name="choke")


def run_choked(shell: Any, cell: str) -> None:
    """Run `cell` in `shell` as IPython would, then report, also when it raises."""
    from unchoke_doctor.watch.run_cells import Meter

    __tracebackhide__ = True  # a traceback is about the cell, not about us
    parts = _compiled(shell, cell)
    meter = Meter()
    meter.begin()
    try:
        for part in parts:
            exec(part, shell.user_ns)
    finally:
        print(_render(meter.end(), lint_cell(shell, cell)))  # noqa: T201


def _compiled(shell: Any, cell: str) -> list[Any]:
    """The cell as code: magics made Python, the value of a last expression shown unless a semicolon ends it."""
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
    """What lint finds in this cell; the cells run before it are read as the notebook's first."""
    from unchoke_doctor.code.source import parse_source
    from unchoke_doctor.lint import lint_source

    before = [str(text) for text in shell.history_manager.input_hist_raw[1:]][-_MOST_CELLS:]
    if before and before[-1].strip().endswith(cell.strip()):
        before.pop()  # this very cell
    sources = [*before, f"%%choke\n{cell}"]
    cells = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in sources]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    findings = lint_source(parse_source("session.ipynb", json.dumps(book).encode("utf-8")))
    return [one for one in findings if one.cell == len(sources)]


def _render(figures: dict[str, Any], findings: list[Finding]) -> str:
    costs = [f"{format_seconds(figures['wall_s'])}, {format_seconds(figures['cpu_s'])} of CPU"]
    if figures["peak_rss_bytes"]:
        costs.append(
            f"peak {format_bytes(figures['peak_rss_bytes'])} ({format_bytes(figures['rise_bytes'] or 0)} above the start)"
        )
    if figures["device_peak_bytes"] is not None:
        costs.append(f"{format_bytes(figures['device_peak_bytes'])} on the GPU")
    lines = [f"choke    {', '.join(costs)}"]
    for one in findings:
        lines += [f"line {one.line}  {one.code}: {one.message}", f"         fix: {one.fix}"]
    return "\n".join(lines if findings else [*lines, "found    nothing in this cell"])
