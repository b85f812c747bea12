"""Places in chains of calls: a chain over several lines is one call, and the line that matters is that of its last method."""

from __future__ import annotations

import ast

from unchoke.code.program import Program
from unchoke.linting.rule import Place


def at_method(program: Program, call: ast.Call) -> Place:
    """From the method's name to the end of the call; the whole call where it is no method."""
    whole = program.place(call)
    if not isinstance(call.func, ast.Attribute):
        return whole
    name = program.place(call.func)
    return Place(whole.cell, name.end_line, name.end_column - len(call.func.attr), whole.end_line, whole.end_column)
