"""Where a value goes: the expressions that hold it, or something made of it.

In comes a call, out go expressions in the same function, in the functions it is handed to and in those it is returned to.
Numbers about the value (its shape, its mean) are not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.node_index import parameters
from unchoke.code.program import Program

_FACTS_OF = frozenset(
    {"shape", "size", "width", "height", "ndim", "dtype", "mode", "count", "meta", "profile", "crs", "bounds", "transform",
     "nbytes", "info", "format", "attrs", "keys", "close", "mean", "std", "min", "max", "sum", "any", "all", "item", "tolist",
     "argmax", "getbbox"}
)  # fmt: skip
_NO_COPY = frozenset(
    {"len", "print", "isinstance", "range", "int", "float", "str", "bool", "type", "hasattr", "id", "repr", "max", "min"}
)
_MOST = 400


def follow(program: Program, call: ast.Call, *, same: bool = False) -> list[ast.expr]:
    """Every expression that holds the value, the call itself first. With `same`, the object itself and not what is made of it."""
    walk = _ForwardWalk(program, same=same)
    walk.go_on(call)
    return list(walk.values)


class _ForwardWalk:
    def __init__(self, program: Program, *, same: bool) -> None:
        self.values: dict[ast.expr, None] = {}
        self._program = program
        self._same = same

    def go_on(self, start: ast.expr) -> None:
        left = [start]
        while left and len(self.values) < _MOST:
            node = left.pop()
            if node not in self.values:
                self.values[node] = None
                left.extend(self._next(node))

    def _next(self, node: ast.expr) -> Iterator[ast.expr]:
        parent = self._program.parent(node)
        if isinstance(parent, ast.keyword):
            node_of, parent = parent, self._program.parent(parent)
            if isinstance(parent, ast.Call):
                yield from self._handed(parent, node, node_of.arg)
        elif isinstance(parent, ast.Call) and node is not parent.func:
            yield from self._handed(parent, node, None)
        elif isinstance(parent, ast.Attribute):
            yield from self._attribute(parent)
        elif isinstance(parent, ast.Return):
            yield from self._returned(parent)
        elif isinstance(parent, ast.stmt | ast.withitem | ast.NamedExpr):
            yield from self._bound(parent, node)
        elif isinstance(parent, ast.Tuple | ast.List | ast.Starred | ast.IfExp):
            yield from self._grouped(parent, node)
        elif isinstance(parent, ast.expr) and not self._same and _is_made_of(parent, node):
            yield parent

    def _handed(self, call: ast.Call, node: ast.expr, keyword: str | None) -> Iterator[ast.expr]:
        """Given to a function: its parameter there; given to a library: what comes back."""
        function = self._program.function_of(call)
        if function is not None:
            for name in parameters(function):
                if name == keyword or (keyword is None and self._program.argument_for(call, function, name) is node):
                    yield from self._loads(function, name, -1)
        if not self._same and self._program.name(call) not in _NO_COPY and self._program.method(call) not in _FACTS_OF:
            yield call

    def _attribute(self, attribute: ast.Attribute) -> Iterator[ast.expr]:
        above = self._program.parent(attribute)
        if isinstance(above, ast.Call) and above.func is attribute:
            if attribute.attr == "__enter__" or (not self._same and attribute.attr not in _FACTS_OF):
                yield above
        elif not self._same and attribute.attr not in _FACTS_OF:
            yield attribute

    def _returned(self, statement: ast.Return) -> Iterator[ast.expr]:
        function = self._program.enclosing_function(statement)
        yield from self._program.callers(function) if function is not None else ()

    def _grouped(self, group: ast.expr, node: ast.expr) -> Iterator[ast.expr]:
        parent = self._program.parent(group)
        if isinstance(parent, ast.Assign) and isinstance(group, ast.Tuple | ast.List):
            position = group.elts.index(node)
            for target in parent.targets:
                if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == len(group.elts):
                    yield from self._named(target.elts[position], parent)
                    return
        yield group

    def _bound(self, parent: ast.AST, node: ast.expr) -> Iterator[ast.expr]:
        if isinstance(parent, ast.Assign):
            for target in parent.targets:
                yield from self._named(target, parent)
        elif isinstance(parent, ast.AnnAssign | ast.NamedExpr) and node is not parent.target:
            yield from self._named(parent.target, parent)
            if isinstance(parent, ast.NamedExpr):
                yield parent
        elif isinstance(parent, ast.withitem) and parent.optional_vars is not None:
            yield from self._named(parent.optional_vars, parent)

    def _named(self, target: ast.expr, statement: ast.AST) -> Iterator[ast.expr]:
        """The later uses of a variable that now holds the value."""
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                yield from self._named(part, statement)
        elif isinstance(target, ast.Name):
            scope = self._program.index.scope(statement)
            yield from self._loads(scope, target.id, self._program.index.number[statement])
        elif isinstance(target, ast.Attribute):
            scope, name = self._program.index.scope(statement), self._program.written(target)
            for node in self._program.within(scope, ast.Attribute) if scope is not None and name else ():
                if isinstance(node.ctx, ast.Load) and self._program.written(node) == name:
                    yield node

    def _loads(self, scope: ast.AST | None, name: str, after: int) -> Iterator[ast.expr]:
        index = self._program.index
        for node in (part for part in self._program.names(name) if isinstance(part.ctx, ast.Load)):
            inside = index.scope(node) is None if scope is None else index.holds(scope, node)
            if inside and index.number[node] > after:
                yield node


def _is_made_of(parent: ast.expr, node: ast.expr) -> bool:
    """Is the outer expression made of the inner one's contents?"""
    if isinstance(parent, ast.Subscript):
        return parent.value is node
    return not isinstance(parent, ast.Compare | ast.BoolOp | ast.JoinedStr)
