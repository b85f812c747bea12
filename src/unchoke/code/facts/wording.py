"""How findings speak of the source: a piece of code cut short, a line as seen from another place."""

from __future__ import annotations

import ast

from unchoke.code.program import Program

_LONGEST = 60


def shortened(program: Program, node: ast.AST, *, keep_end: bool = True) -> str:
    """The code on one line, cut at the front (so that the call at its end stays) or at the back."""
    text = program.text(node)
    if len(text) <= _LONGEST:
        return text
    return "…" + text[-_LONGEST + 2 :] if keep_end else text[: _LONGEST - 2] + "…"


def line_of(program: Program, node: ast.AST, *, seen_from: ast.AST) -> str:
    """`line 12`, with the cell where that is another one."""
    place, here = program.place(node), program.place(seen_from)
    if place.cell is None or place.cell == here.cell:
        return f"line {place.line}"
    return f"cell {place.cell}, line {place.line}"
