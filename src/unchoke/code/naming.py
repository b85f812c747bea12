"""Names to what they were imported as: aliases, `from` and star imports, plain re-assignments such as `L = tf.keras.layers`.

In comes an index, out goes a dotted name for a `Name` node, or None where a variable hides the import. Functions and classes of
the file itself are not names here: they keep their own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from unchoke.code.known_names import canonical, star_name
from unchoke.code.node_index import Index

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class _Bound:
    order: int
    scope: ast.AST | None
    target: str


class Naming:
    """Which import a name stands for, at a place."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._imports: dict[str, list[_Bound]] = {}
        self._stars: list[tuple[int, str]] = []
        self._locals: dict[ast.AST, set[str]] = {}
        self._module: dict[str, list[int]] = {}
        self._defined: set[str] = set()
        self._read_imports()
        self._read_variables()
        self._read_aliases()

    def _read_imports(self) -> None:
        for number in self._index.numbers((ast.Import, ast.ImportFrom)):
            node = self._index.all[number]
            scope = self._index.scope(node)
            for name, target in _imported(node):
                if name == "*":
                    self._stars.append((number, canonical(target)))
                else:
                    self._imports.setdefault(name, []).append(_Bound(number, scope, canonical(target)))

    def _read_variables(self) -> None:
        index = self._index
        for number in index.numbers((ast.Name,)):
            node = index.all[number]
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not self._in_comprehension(node):
                self._bind(node.id, number, index.scope(node), index.owner(node))
        for number in index.numbers((ast.arg,)):
            node = index.all[number]
            scope = index.scope(node)
            if isinstance(node, ast.arg) and scope is not None:
                self._locals.setdefault(scope, set()).add(node.arg)
        for number in index.numbers((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            node = index.all[number]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._defined.add(node.name)
                self._bind(node.name, number, index.scope(node), index.owner(node))

    def _bind(self, name: str, number: int, scope: ast.AST | None, owner: ast.AST | None) -> None:
        if scope is not None and (owner is None or self._index.number[owner] < self._index.number[scope]):
            self._locals.setdefault(scope, set()).add(name)
        elif scope is None and owner is None:
            self._module.setdefault(name, []).append(number)

    def _in_comprehension(self, node: ast.AST) -> bool:
        parent = self._index.parent(node)
        while isinstance(parent, ast.Tuple | ast.List | ast.Starred):
            parent = self._index.parent(parent)
        return isinstance(parent, ast.comprehension)

    def _read_aliases(self) -> None:
        """`layers = keras.layers` and `imread = cv2.imread` go on meaning the library."""
        for number in self._index.numbers((ast.Assign,)):
            node = self._index.all[number]
            if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
                continue
            target = self.dotted(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else None
            if target and "." in target and not target[0].isupper():
                bound = _Bound(number, self._index.scope(node), target)
                self._imports.setdefault(node.targets[0].id, []).append(bound)

    def dotted(self, node: ast.expr) -> str | None:
        """The full dotted name of a name or attribute chain that begins at an import, else None."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        root = self.resolve(node)
        if root is None:
            return None
        return canonical(".".join([root, *reversed(parts)])) if parts else root

    def resolve(self, node: ast.Name) -> str | None:
        """What the name was imported as, at this place in the program."""
        name, number = node.id, self._index.number[node]
        bounds = self._imports.get(name)
        if bounds is None and not self._stars:
            return None
        scope: ast.AST | None = self._index.scope(node)
        while scope is not None:
            own = [bound for bound in bounds or () if bound.scope is scope]
            if own:
                return own[-1].target
            if name in self._locals.get(scope, ()):
                return None
            scope = self._index.scope(scope)
        return self._at_module(name, number, bounds or [], in_function=self._index.scope(node) is not None)

    def _at_module(self, name: str, number: int, bounds: list[_Bound], *, in_function: bool) -> str | None:
        bounds = [bound for bound in bounds if bound.scope is None]
        if not bounds:
            return self._starred(name)
        before = [bound for bound in bounds if bound.order < number]
        chosen = before[-1] if before and not in_function else bounds[-1]
        hiding = [at for at in self._module.get(name, ()) if at > chosen.order and (in_function or at < number)]
        hiding = [at for at in hiding if not self._is_alias(at, bounds)]
        return None if hiding else chosen.target

    def _is_alias(self, at: int, bounds: list[_Bound]) -> bool:
        """Is the assignment of this variable itself one of the bounds?"""
        parent = self._index.parent(self._index.all[at])
        return parent is not None and any(self._index.number[parent] == bound.order for bound in bounds)

    def _starred(self, name: str) -> str | None:
        if name in self._module or name in self._defined:
            return None
        found: Iterator[str | None] = (star_name(module, name) for _, module in reversed(self._stars))
        return next((target for target in found if target), None)


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Each name an import statement binds, and what it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0], alias.name.split(".")[0])
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield ("*", module) if alias.name == "*" else (alias.asname or alias.name, f"{module}.{alias.name}")
