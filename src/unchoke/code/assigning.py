"""Which expression a variable was given, where, and in which scope.

In comes an index, out go the value expressions of `x`, `self.x`, `CFG.x` and `cfg["x"]`, also through unpacking and `with … as`.
Values that only exist when the program runs (loop variables, parameters) are not here.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from unchoke.code.node_index import Index


@dataclass(frozen=True, eq=False)
class Assignment:
    """One assignment. `position` is the place in a tuple that `value` (a call) returns, else None."""

    order: int
    scope: ast.AST | None
    owner: ast.ClassDef | None
    value: ast.expr
    position: int | None = None


def written(node: ast.AST | None) -> str:
    """A name as written: `self.model.fc`, `CONFIG["bs"]`; empty for what is no such chain."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = written(node.value)
        return f"{base}.{node.attr}" if base else ""
    if isinstance(node, ast.Subscript):
        base = written(node.value)
        key = node.slice
        if base and isinstance(key, ast.Constant) and isinstance(key.value, str | int):
            return f"{base}[{key.value!r}]"
    return ""


class Assignments:
    """Every assignment by written name, in file order."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._by_name: dict[str, list[Assignment]] = {}
        self._by_scope: dict[tuple[str, ast.AST | None], list[Assignment]] = {}
        kinds = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.withitem)
        for number in index.numbers(kinds):
            node = index.all[number]
            for target, value, position in _pairs(node):
                name = written(target)
                if name:
                    given = Assignment(number, index.scope(node), index.owner(node), value, position)
                    self._by_name.setdefault(name, []).append(given)
                    within = given.owner if name.startswith("self.") else given.scope
                    self._by_scope.setdefault((name, within), []).append(given)

    def names(self) -> Iterator[tuple[str, list[Assignment]]]:
        yield from self._by_name.items()

    def all(self, name: str) -> list[Assignment]:
        return self._by_name.get(name, [])

    def seen_from(self, name: str, at: ast.AST) -> list[Assignment]:
        """The assignments that the code at `at` can mean: of its own function first, then outwards; `self.x` of its class."""
        if name not in self._by_name:
            return []
        if name.startswith("self."):
            return self._by_scope.get((name, self._index.owner(at)), [])
        scope: ast.AST | None = self._index.scope(at)
        while scope is not None:
            own = self._by_scope.get((name, scope))
            if own:
                return own
            scope = self._index.scope(scope)
        return self._by_scope.get((name, None), [])

    def latest(self, name: str, at: ast.AST) -> Assignment | None:
        """The last assignment before `at` in its scope; the last one of all where none comes before."""
        found = self.seen_from(name, at)
        if not found:
            return None
        if found[0].scope is not self._index.scope(at):
            return found[-1]
        number = self._index.number[at]
        place = bisect_left(found, number, key=lambda given: given.order)
        for given in reversed(found[max(0, place - 3) : place]):
            if self._index.stop(self._index.all[given.order]) < number:
                return given
        return found[-1]


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, int | None]]:
    """Target, value and position of everything one statement assigns."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value, None
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _unpacked(node.optional_vars, node.context_expr)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr, int | None]]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value, None
        return
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
        for inner, given in zip(target.elts, value.elts, strict=True):
            yield from _unpacked(inner, given)
    elif isinstance(value, ast.Call):
        yield from ((inner, value, position) for position, inner in enumerate(target.elts))
