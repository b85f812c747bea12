"""What stands on a line that was measured: its calls by the names they were imported by, the loops round it, its function.

In: a file, a line and perhaps the piece of it that ran (`StackRow.span`). Out: a `SourceLine`, or None where the file is
gone, does not parse or is no file. Sources are read once; cells of a notebook are given by `add_cells`. Nothing is judged
here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeGuard

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_RANDOM = (
    *("random", "rand", "randn", "randint", "choice", "choices", "shuffle", "permutation", "sample", "normal", "uniform", "rng"),
)
_CHANGING = frozenset(
    ("append", "extend", "insert", "add", "update", "setdefault", "pop", "popleft", "remove", "clear", "fill", "sort", "put")
)
_cells: dict[str, str] = {}


class _Tree:
    """A parsed file: parents, imports, lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines()
        self.root = ast.parse(text)
        self.parents = {child: node for node in ast.walk(self.root) for child in ast.iter_child_nodes(node)}
        self.imports: dict[str, str] = {}
        for node in ast.walk(self.root):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self.imports[name] = alias.name if alias.asname else name
            elif isinstance(node, ast.ImportFrom):
                self.imports |= {alias.asname or alias.name: f"{node.module or ''}.{alias.name}" for alias in node.names}

    def name(self, node: ast.expr) -> str:
        """`numpy.concatenate`, `self.db.execute`; parts that are no plain names are left out: `.execute`."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        first = self.imports.get(node.id, node.id) if isinstance(node, ast.Name) else ""
        return ".".join([first, *reversed(parts)])

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that hold this one, innermost first."""
        at = self.parents.get(node)
        while at is not None:
            yield at
            at = self.parents.get(at)


@dataclass(frozen=True, eq=False)
class SourceLine:
    """One line of the user's: the statement it belongs to, and the expression that was being worked out."""

    tree: _Tree
    statement: ast.stmt
    expression: ast.AST

    @cached_property
    def text(self) -> str:
        """The statement on one line; of a compound one, its head."""
        return (ast.get_source_segment(self.tree.text, self.statement) or "").partition("\n")[0].strip()

    def source(self, node: ast.AST) -> str:
        return (ast.get_source_segment(self.tree.text, node) or "").partition("\n")[0].strip()

    @cached_property
    def calls(self) -> list[tuple[str, ast.Call]]:
        """Calls of the expression that ran, else of the statement, outermost first, by name."""
        return self._calls(self.expression) or self.all_calls

    @cached_property
    def all_calls(self) -> list[tuple[str, ast.Call]]:
        statement = self.statement
        heads: list[ast.AST] = [statement]
        if isinstance(statement, ast.For | ast.AsyncFor):
            heads = [statement.iter]
        elif isinstance(statement, ast.While | ast.If):
            heads = [statement.test]
        elif isinstance(statement, ast.With):
            heads = [item.context_expr for item in statement.items]
        return [found for head in heads for found in self._calls(head)]

    def _calls(self, node: ast.AST) -> list[tuple[str, ast.Call]]:
        if isinstance(node, ast.stmt) and hasattr(node, "body"):
            return []
        return [(self.tree.name(call.func), call) for call in ast.walk(node) if isinstance(call, ast.Call)]

    @cached_property
    def function(self) -> ast.AST | None:
        return next((node for node in self.tree.around(self.statement) if isinstance(node, _FUNCTIONS)), None)

    @cached_property
    def _own_function(self) -> ast.AST | None:
        return self.statement if isinstance(self.statement, _FUNCTIONS) else self.function

    @cached_property
    def last_return(self) -> int:
        """The line of the last `return` of the function; 0 without one."""
        found = [
            node.lineno for node in ast.walk(self._own_function or ast.Pass()) if isinstance(node, ast.Return) and node.value
        ]
        return max(found, default=0)

    @cached_property
    def sliced_later(self) -> bool:
        """Whether the function takes a slice of what the line assigns."""
        targets = self.statement.targets if isinstance(self.statement, ast.Assign) else []
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        parts = [node for node in ast.walk(self._own_function or ast.Pass()) if isinstance(node, ast.Subscript)]
        slices = [part for part in parts if any(isinstance(node, ast.Slice) for node in ast.walk(part.slice))]
        return any(isinstance(part.value, ast.Name) and part.value.id in names for part in slices)

    @cached_property
    def function_names(self) -> list[str]:
        """The names of all calls in the function round the line."""
        calls = [node for node in ast.walk(self._own_function or self.statement) if isinstance(node, ast.Call)]
        return [self.tree.name(call.func) for call in calls]

    def function_calls(self, *names: str) -> bool:
        """Whether the function round the line calls something whose name ends so."""
        return any(name.rpartition(".")[2] in names for name in self.function_names)

    def keyword(self, name: str) -> str:
        """The text of a keyword of this name in a call of the line; empty where there is none."""
        found = (one for _, call in self.all_calls for one in call.keywords if one.arg == name)
        return next((self.source(one.value) for one in found), "")

    @cached_property
    def bases(self) -> list[str]:
        """What the class round the line is made from, by name."""
        owner = next((node for node in self.tree.around(self.statement) if isinstance(node, ast.ClassDef)), None)
        return [] if owner is None else [self.tree.name(base) for base in owner.bases]

    @cached_property
    def loops(self) -> list[ast.AST]:
        """Loops and comprehensions round the expression, innermost first, inside its function; not those that train.

        The loop round a `yield` turns when somebody asks for the next value: it is none.
        """
        found: list[ast.AST] = []
        inner: ast.AST = self.expression
        if isinstance(self.expression, (ast.For, ast.While, *_LOOPS[3:])):
            found.append(self.expression)
        for node in self.tree.around(self.expression):
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Module)):
                break
            if isinstance(node, _LOOPS) and getattr(node, "iter", None) is not inner:
                found.append(node)
            inner = node
        yields = any(isinstance(node, ast.Yield) for node in ast.walk(self.statement))
        return [loop for loop in found if not _trains(loop) and not (yields and isinstance(loop, ast.For | ast.While))]

    @cached_property
    def in_batch_loop(self) -> bool:
        """Whether the innermost loop round the statement is the one over batches: it trains, and holds no other that does."""
        loop = next((node for node in self.tree.around(self.statement) if isinstance(node, ast.For | ast.While)), None)
        inner = [node for node in ast.walk(loop) if node is not loop and isinstance(node, ast.For | ast.While)] if loop else []
        return loop is not None and _trains(loop) and not any(map(_trains, inner))

    @cached_property
    def draws_at_random(self) -> bool:
        """Whether the function round the line draws random numbers: its result is another one each time."""
        names = [self.tree.name(node.func) for node in ast.walk(self.function or self.statement) if isinstance(node, ast.Call)]
        return any(part.partition("_")[0] in _RANDOM for name in names for part in name.split("."))

    @cached_property
    def multiplies(self) -> bool:
        """Whether the statement holds a product of matrices."""
        products = {"mm", "matmul", "bmm", "einsum", "addmm"}
        named = any(name.rpartition(".")[2] in products for name, _ in self.all_calls)
        return named or any(isinstance(node, ast.MatMult) for node in ast.walk(self.statement))

    @cached_property
    def unchanging(self) -> str:
        """The first name that the line reads, if all of them are bound once, at the top of the file, and changed nowhere."""
        stored = [node for node in ast.walk(self.tree.root) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]
        written = {part.value.id for part in ast.walk(self.tree.root) if _changes(part) and isinstance(part.value, ast.Name)}
        once = {node.id for node in stored if not any(isinstance(one, (*_LOOPS, *_FUNCTIONS)) for one in self.tree.around(node))}
        once -= {node.id for node in stored if sum(one.id == node.id for one in stored) > 1} | written
        value = getattr(self.statement, "value", None)
        names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)] if value is not None else []
        names = [name for name in names if name not in self.tree.imports]
        return names[0] if names and set(names) <= once else ""

    @cached_property
    def spins(self) -> bool:
        """Whether the line stands in, or is, a `while` that neither waits, sleeps nor works: it only asks."""
        loop = next((node for node in (self.statement, *self.tree.around(self.statement)) if isinstance(node, ast.While)), None)
        if loop is None or isinstance(loop.test, ast.Constant):
            return False
        return all(isinstance(node, ast.Pass | ast.Continue) for node in loop.body)


def _changes(node: ast.AST) -> TypeGuard[ast.Subscript | ast.Attribute]:
    """`x[i] = …`, `x.a = …`, `x.append(…)`."""
    stores = isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load)
    return stores or (isinstance(node, ast.Attribute) and node.attr in _CHANGING)


def _trains(loop: ast.AST) -> bool:
    methods = {node.func.attr for node in ast.walk(loop) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
    return not methods.isdisjoint({"backward", "zero_grad"}) or {"step", "to"} <= methods


def add_cells(cells: Mapping[str, str]) -> None:
    """The text of files that exist in no file system: cells of a notebook."""
    for file, text in cells.items():
        if _cells.get(file) != text:
            _cells[file] = text
            _tree.cache_clear()
            source_line.cache_clear()


@lru_cache(maxsize=64)
def _tree(file: str) -> _Tree | None:
    try:
        return _Tree(_cells[file] if file in _cells else Path(file).read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def line_text(file: str, line: int) -> str:
    """The line as it stands in the file now; empty where there is none."""
    tree = _tree(file)
    return tree.lines[line - 1].strip() if tree is not None and 0 < line <= len(tree.lines) else ""


@lru_cache(maxsize=4_000)
def source_line(file: str, line: int, span: tuple[int, ...] = (), *, called: bool = False) -> SourceLine | None:
    """The smallest statement that covers the line, and the smallest expression of it that covers the span.

    `called`: the line was inside something that it had called.
    """
    tree = _tree(file)
    if tree is None:
        return None
    covers = [
        node for node in ast.walk(tree.root) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    statement = min(covers, key=lambda node: (node.end_lineno or node.lineno) - node.lineno, default=None)
    if statement is None:
        return None
    if isinstance(statement, ast.For | ast.AsyncFor) and len(span) == 4 and span[1] > span[0] and not called:
        statement = statement.body[-1]  # met on the way back to the head, at the end of the body
    found: ast.AST = statement
    if len(span) == 4:
        first, last, column, end_column = span
        for node in ast.walk(statement):  # outer nodes come first, so that the last one that fits is the smallest
            if not isinstance(node, ast.expr):
                continue
            ends = (node.end_lineno or 0, node.end_col_offset or 0)
            if (node.lineno, node.col_offset) <= (first, column) and ends >= (last, end_column):
                found = node
    return SourceLine(tree, statement, found)


def call_line(file: str, *names: str) -> int | None:
    """The first line of a file that calls something whose name ends so, such as `set_default_dtype`."""
    tree = _tree(file)
    calls = [node for node in ast.walk(tree.root) if isinstance(node, ast.Call)] if tree is not None else []
    return min((call.lineno for call in calls if tree and tree.name(call.func).rpartition(".")[2] in names), default=None)


def keyword_line(file: str, name: str, value: str) -> int | None:
    """The first line with a keyword of this name and text, such as `padding="max_length"`."""
    tree = _tree(file)
    found = [node for node in ast.walk(tree.root) if isinstance(node, ast.keyword) and node.arg == name] if tree else []
    return min(
        (one.value.lineno for one in found if isinstance(one.value, ast.Constant) and one.value.value == value), default=None
    )


def with_keywords(file: str, line: int, method: str, **keywords: str) -> list[str]:
    """The line as it is and with these keywords in its call of `method`; nothing unless the call stands on that one line."""
    tree = _tree(file)
    for call in ast.walk(tree.root) if tree is not None else ():
        if tree is None or not isinstance(call, ast.Call) or not call.lineno == call.end_lineno == line:
            continue
        if tree.name(call.func).rpartition(".")[2] != method or any(keyword.arg is None for keyword in call.keywords):
            continue
        new = ast.Call(call.func, call.args, [keyword for keyword in call.keywords if keyword.arg not in keywords])
        new.keywords += [ast.keyword(name, ast.parse(value, mode="eval").body) for name, value in keywords.items()]
        old = tree.lines[line - 1].encode()
        changed = old[: call.col_offset] + ast.unparse(new).encode() + old[call.end_col_offset :]
        return [f"- {old.decode().strip()}", f"+ {changed.decode().strip()}"]
    return []
