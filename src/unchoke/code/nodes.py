"""A source as nodes: found by type and place, with their names spelled one way, their text and their comments.

In comes a `SourceFile`, out goes `Nodes`, the lowest layer of a program (`tracing` and `constant_values` lie above). Follows no
call and no variable.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar, overload

from unchoke.code.bindings import Bindings, written
from unchoke.code.magics import split_lines
from unchoke.code.naming import Naming
from unchoke.code.node_index import FunctionNode, Index, LoopNode, remembered
from unchoke.code.source import Cell, CodePlace, Prose, SourceFile, borrowed_around, prose_of
from unchoke.code.unread import UnreadCode, find_unread

_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
N = TypeVar("N", bound=ast.AST)
M = TypeVar("M", bound=ast.AST)
L = TypeVar("L", bound=ast.AST)


class Nodes:
    """What is where in the source, and what it is called."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.is_notebook = source.is_notebook
        values, definitions = borrowed_around(source)
        self.index = Index((*values, *source.cells, *definitions))
        self.bindings = Bindings(self.index)
        self._naming = Naming(self.index, self.bindings)
        self.memory: dict[Any, dict[Any, Any]] = {}  # answers of functions that are `remembered`
        self._lines: dict[int | None, list[str]] = {}
        self._names: dict[ast.AST, str] = {}
        self._last_names: dict[ast.AST, str] = {}
        self._written: dict[ast.AST, str] = {}

    @overload
    def nodes(self, one: type[N], /) -> Iterator[N]: ...
    @overload
    def nodes(self, one: type[N], two: type[M], /) -> Iterator[N | M]: ...
    @overload
    def nodes(self, one: type[N], two: type[M], /, *more: type[L]) -> Iterator[N | M | L]: ...
    def nodes(self, *types: type[ast.AST]) -> Iterator[ast.AST]:
        """All nodes of these types in all cells, in order."""
        return iter(self.index.listed(types))

    @overload
    def within(self, node: ast.AST, one: type[N], /) -> Iterator[N]: ...
    @overload
    def within(self, node: ast.AST, one: type[N], two: type[M], /) -> Iterator[N | M]: ...
    @overload
    def within(self, node: ast.AST, one: type[N], two: type[M], /, *more: type[L]) -> Iterator[N | M | L]: ...
    def within(self, node: ast.AST, *types: type[ast.AST]) -> Iterator[ast.AST]:
        """All nodes of these types at or below `node`, in order."""
        return iter(self.index.within(node, types))

    def calls_in(self, blocks: Iterable[ast.AST]) -> Iterator[ast.Call]:
        """All calls in some statements, functions or expressions, one after the other."""
        return (call for block in blocks for call in self.within(block, ast.Call))

    def in_order(self, nodes: Iterable[N]) -> list[N]:
        """The nodes in the order of reading."""
        return sorted(nodes, key=self.index.number.__getitem__)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.index.parent(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """From the parent outwards, to the module of the cell."""
        above = self.index.parent(node)
        while above is not None:
            yield above
            above = self.index.parent(above)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The statement that `node` is part of, or is."""
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.stmt):
            at = self.index.parent(at)
        return at

    def block_round(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements that it stands among: a body, an `else`, a `finally`."""
        parent = self.index.parent(statement)
        blocks = (getattr(parent, field, None) for field in ("body", "orelse", "finalbody"))
        return next((block for block in blocks if isinstance(block, list) and statement in block), [])

    def enclosing_function(self, node: ast.AST) -> FunctionNode | None:
        """The innermost `def` whose body holds `node`; lambdas are passed over."""
        scope = self.index.scope(node)
        while isinstance(scope, ast.Lambda):
            scope = self.index.scope(scope)
        return scope

    def enclosing_scope(self, node: ast.AST) -> FunctionNode | ast.Lambda | None:
        """The innermost `def` or lambda whose body holds `node`."""
        return self.index.scope(node)

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        return self.index.owner(node)

    def loops_around(self, node: ast.AST) -> list[LoopNode]:
        """The loops in whose body `node` is, innermost first, up to the function's own body."""
        found: list[LoopNode] = []
        number = self.index.number[node]
        for above in self.ancestors(node):
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                break
            if isinstance(above, _LOOPS) and self.in_body(above, number):
                found.append(above)
        return found

    def in_body(self, block: LoopNode | FunctionNode | ast.With | ast.AsyncWith, number: int) -> bool:
        """Is the node of this number in the block's body (and not in its head or its `else`)?"""
        return self.index.number[block.body[0]] <= number <= self.index.stop(block.body[-1])

    def is_before(self, first: ast.AST, second: ast.AST) -> bool:
        """Does `first` come before `second` in the file?"""
        return self.index.number[first] < self.index.number[second]

    def in_main_guard(self, node: ast.AST) -> bool:
        """Is it under `if __name__ == "__main__":`?"""
        return any(isinstance(above, ast.If) and is_main_test(above.test) for above in self.ancestors(node))

    # Places and text

    def cell(self, node: ast.AST) -> Cell:
        return self.index.cell(node)

    def place(self, node: ast.AST) -> CodePlace:
        """Cell, lines from 1 and columns from 0 of `node`; for a `def` or `class` with decorators, its own line."""
        cell = self.index.cell(node)
        at: ast.AST | None = node
        while at is not None and not hasattr(at, "lineno"):
            at = next(iter(ast.iter_child_nodes(at)), None) or self.index.parent(at)
        if at is None:
            return CodePlace(cell.number, 1, 0, 1, 0)
        line, end = int(at.lineno), int(getattr(at, "end_lineno", None) or at.lineno)
        return CodePlace(
            cell.number,
            line,
            self._column(cell, line, getattr(at, "col_offset", 0)),
            end,
            self._column(cell, end, getattr(at, "end_col_offset", None) or 0),
        )

    def _column(self, cell: Cell, line: int, offset: int) -> int:
        """Python counts columns in UTF-8 bytes; people and editors in characters."""
        lines = self._lines.get(cell.number)
        if lines is None:
            lines = self._lines[cell.number] = split_lines(cell.python)
        text = lines[line - 1] if line <= len(lines) else ""
        if text.isascii():
            return offset + cell.indent
        return len(text.encode("utf-8", errors="surrogatepass")[:offset].decode("utf-8", errors="ignore")) + cell.indent

    def line(self, node: ast.AST) -> int:
        return self.place(node).line

    def text(self, node: ast.AST) -> str:
        """The node's source, on one line."""
        try:
            return ast.unparse(node)
        except (RecursionError, ValueError):
            return ""

    @cached_property
    def modules(self) -> list[str]:
        """The modules that the program imports, or imports from, anywhere."""
        names = [alias.name for node in self.nodes(ast.Import) for alias in node.names]
        return names + [node.module or "" for node in self.nodes(ast.ImportFrom)]

    @cached_property
    def unread(self) -> tuple[UnreadCode, ...]:
        """What the program runs that was not read, with reasons. Who claims an absence asks here first."""
        return find_unread(self.source)

    @cached_property
    def prose(self) -> list[Prose]:
        """What the author wrote for people, as (cell, text): markdown cells and comments in order, then docstrings."""
        found = [piece for cell in self.source.cells for piece in prose_of(cell)]
        for number in self.index.numbers(_DOCUMENTED):
            words = ast.get_docstring(self.index.all[number], clean=False)  # type: ignore[arg-type]
            if words:
                found.append((self.cell(self.index.all[number]).number, words))
        return found

    def could_be_elsewhere(self, words: str) -> bool:
        """May code of the program that was not read do what these words (a pattern) say? Ask before claiming an absence."""
        texts = {cell.number: cell.text for cell in self.source.cells}
        return any(
            piece.kind in ("star", "run") or (piece.kind == "cell" and re.search(words, texts.get(piece.cell, "")))
            for piece in self.unread
        )

    # Names

    def name(self, node: ast.AST | None) -> str:
        """The dotted name with aliases resolved; of a call, of what is called; `?.item` on an unknown object."""
        if node is None:
            return ""
        name = self._names.get(node)
        if name is None:
            name = self._names[node] = self._named(node.func if isinstance(node, ast.Call) else node)
        return name

    def _named(self, node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return self._naming.dotted(node) or node.id
        if isinstance(node, ast.Attribute):
            return self._naming.dotted(node) or f"?.{node.attr}"
        return ""

    def method(self, node: ast.AST | None) -> str:
        """The last part of the name of what is called."""
        if node is None:
            return ""
        method = self._last_names.get(node)
        if method is None:
            method = self._last_names[node] = self.name(node).rpartition(".")[2]
        return method

    def calls_to(self, *methods: str) -> list[ast.Call]:
        """All calls whose name ends in one of these (`load` for `torch.load(…)` and `x.load(…)`), in order."""
        found = [call for method in methods for call in self._calls_by_method.get(method, ())]
        return found if len(methods) == 1 else sorted(found, key=self.index.number.__getitem__)

    def calls_named(self, names: Iterable[str]) -> list[ast.Call]:
        """All calls of these dotted names, in order."""
        return self.in_order(call for name in names for call in self.calls_by_name.get(name, ()))

    @cached_property
    def calls_by_name(self) -> dict[str, list[ast.Call]]:
        """All calls by their dotted name."""
        return _grouped(self.nodes(ast.Call), self.name)

    def names(self, name: str) -> list[ast.Name]:
        """All places where this plain name stands, read or assigned, in order."""
        return self._by_word(ast.Name, "id").get(name, [])

    def attributes(self, name: str) -> list[ast.Attribute]:
        """All places where an attribute of this name stands, read or assigned, in order."""
        return self._by_word(ast.Attribute, "attr").get(name, [])

    @remembered
    def _by_word(self, kind: type[N], word: str) -> dict[str, list[N]]:
        return _grouped(self.nodes(kind), attrgetter(word))

    @cached_property
    def _calls_by_method(self) -> dict[str, list[ast.Call]]:
        return _grouped(self.nodes(ast.Call), self.method)

    def written(self, node: ast.AST | None) -> str:
        """A name as the author wrote it: `self.model.fc`; empty if it is no plain chain of names."""
        if node is None:
            return ""
        text = self._written.get(node)
        if text is None:
            text = self._written[node] = written(node)
        return text

    def receiver(self, call: ast.AST | None) -> ast.expr | None:
        """`model` in `model.eval()`."""
        func = call.func if isinstance(call, ast.Call) else call
        return func.value if isinstance(func, ast.Attribute) else None


def _grouped(nodes: Iterable[N], key: Callable[[N], str]) -> dict[str, list[N]]:
    found: dict[str, list[N]] = {}
    for node in nodes:
        found.setdefault(key(node), []).append(node)
    return found


def is_main_test(test: ast.expr) -> bool:
    """Is this `__name__ == "__main__"`, either way round?"""
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return False
    sides = (test.left, test.comparators[0])
    return any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
