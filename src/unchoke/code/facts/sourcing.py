"""What an expression is made of, within one function: which assignment a name means, and all that stands behind it.

In come a program and an expression, out go nodes. Follows plain assignments and unpacking; no branches are weighed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.assigning import Given
from unchoke.code.node_index import LoopNode
from unchoke.code.program import Program

_MOST = 40  # assignments behind one expression


def root(node: ast.AST | None) -> str:
    """The variable a chain begins with: `history` in `history["loss"].append`; `self.x` stays whole."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return f"self.{node.attr}"
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def given_before(program: Program, node: ast.AST) -> Given | None:
    """The assignment of the variable `node` that comes last before it in the same scope, unpacked or not."""
    name = program.written(node)
    number, scope = program.index.number[node], program.enclosing_scope(node)
    found = [item for item in program.given(name) if item.scope is scope]
    before = [item for item in found if program.index.stop(program.index.all[item.order]) < number]
    return before[-1] if before else None


def sources(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    """Every node of an expression and, through the variables in it, of what they were given in the same function; each once."""
    seen: set[ast.AST] = {node}
    left = [node]
    while left and len(seen) < _MOST:
        for part in program.within(left.pop(), ast.AST):
            yield part
            given = given_before(program, part) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) else None
            if given is not None and given.value not in seen and not program.index.holds(given.value, node):
                seen.add(given.value)
                left.append(given.value)


def loop_names(loop: LoopNode | ast.comprehension) -> set[str]:
    """The variables that a loop sets."""
    if isinstance(loop, ast.While):
        return set()
    return {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}


def comprehensions_round(program: Program, node: ast.AST) -> list[ast.comprehension]:
    """The `for` parts of the comprehensions whose element holds `node`, innermost first."""
    found: list[ast.comprehension] = []
    inner = node
    for above in program.ancestors(node):
        if isinstance(above, ast.stmt | ast.Lambda):
            break
        if isinstance(above, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) and inner not in above.generators:
            found += reversed(above.generators)
        inner = above
    return found
