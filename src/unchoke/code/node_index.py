"""All nodes of all cells in one numbered list: parents, cells, scopes and subtrees by number. One walk, no recursion.

In come cells with their trees, out goes an `Index`. A node's subtree is the stretch of numbers from its own to `stop`, so that
'all calls under this loop' is a cut out of a sorted list. Knows nothing of names or meaning. Below it, small questions about one
node: the parameters of a function, the arguments of a call, the targets of an assignment; and `remembered` and `Answers`: each
worked out once, also where one rests on another and that on the first again.
"""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from unchoke.code.source import Cell

A = TypeVar("A")
P = ParamSpec("P")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
LoopNode = ast.For | ast.AsyncFor | ast.While
_OPENING = frozenset(
    {ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef}
)  # what is inside has another scope or owner
_LEAVES = frozenset({ast.Name, ast.Constant, ast.alias, ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal})
# Names, numbers, and what Python shares as one object among all trees (contexts and operators), which has no place of its own.
_PLAIN_FIELDS = frozenset(
    {"ctx", "op", "ops", "id", "attr", "asname", "module", "level", "kind", "type_comment", "simple", "is_async"}
)
_HOLDING: dict[type[ast.AST], tuple[str, ...]] = {}  # the fields of each kind of node that may hold nodes, as they are met


class Index:
    """Numbers every node in the order of reading (depth first)."""

    def __init__(self, cells: tuple[Cell, ...]) -> None:
        self.all: list[ast.AST] = []
        self.number: dict[ast.AST, int] = {}
        self._parent: list[int] = []
        self._scope: list[int] = []
        self._class: list[int] = []
        self._starts: list[int] = []
        self._cells: list[Cell] = []
        self._by_type: dict[type, list[int]] = {}
        for cell in cells:
            if cell.tree is not None and cell.executed:
                self._starts.append(len(self.all))
                self._cells.append(cell)
                self._walk(cell.tree)
        self._stop = self._stops()
        self._kinds: dict[tuple[type, ...], list[int]] = {}
        self._listed: dict[tuple[type, ...], list[ast.AST]] = {}

    def _walk(self, tree: ast.Module) -> None:
        """Written for speed: every node of every cell passes through here."""
        stack: list[tuple[ast.AST, int, int, int]] = [(tree, -1, -1, -1)]
        every, numbers, by_type = self.all, self.number, self._by_type
        parents, scopes, owners = self._parent, self._scope, self._class
        while stack:
            node, parent, scope, owner = stack.pop()
            number = len(every)
            every.append(node)
            numbers[node] = number
            parents.append(parent)
            scopes.append(scope)
            owners.append(owner)
            kind = node.__class__
            if kind in by_type:
                by_type[kind].append(number)
            else:
                by_type[kind] = [number]
            if kind in _LEAVES:
                continue
            children = _children(node)
            if kind in _OPENING:
                outside: list[ast.AST] = getattr(node, "decorator_list", [])
                inside = [child for child in children if child not in outside]
                inner = (number if kind is not ast.ClassDef else scope, number if kind is ast.ClassDef else owner)
                stack.extend((child, number, *inner) for child in reversed(inside))
                children = outside
            for child in reversed(children):
                stack.append((child, number, scope, owner))  # noqa: PERF401 (a list of tuples first takes longer)

    def _stops(self) -> list[int]:
        stop = list(range(len(self.all)))
        for number in range(len(self.all) - 1, -1, -1):
            parent = self._parent[number]
            if parent >= 0 and stop[number] > stop[parent]:
                stop[parent] = stop[number]
        return stop

    def numbers(self, types: tuple[type, ...]) -> list[int]:
        """The numbers of all nodes of these types, rising."""
        found = self._kinds.get(types)
        if found is None:
            lists = [numbers for kind, numbers in self._by_type.items() if issubclass(kind, types)]
            found = lists[0] if len(lists) == 1 else sorted(number for numbers in lists for number in numbers)
            self._kinds[types] = found
        return found

    def listed(self, types: tuple[type, ...]) -> list[ast.AST]:
        """All nodes of these types, in order. Not to be changed."""
        found = self._listed.get(types)
        if found is None:
            found = self._listed[types] = [self.all[number] for number in self.numbers(types)]
        return found

    def within(self, node: ast.AST, types: tuple[type, ...]) -> list[ast.AST]:
        """All nodes of these types at or below `node`, in order."""
        first = self.number[node]
        numbers = self.numbers(types)
        return self.listed(types)[bisect_left(numbers, first) : bisect_right(numbers, self._stop[first])]

    def stop(self, node: ast.AST) -> int:
        """The number of the last node under `node`."""
        return self._stop[self.number[node]]

    def holds(self, outer: ast.AST, inner: ast.AST) -> bool:
        """Is `inner` at or below `outer`?"""
        first = self.number[outer]
        return first <= self.number[inner] <= self._stop[first]

    def holds_any(self, block: Sequence[ast.AST], inner: ast.AST) -> bool:
        """Is `inner` in a block of statements?"""
        return bool(block) and self.number[block[0]] <= self.number[inner] <= self.stop(block[-1])

    def parent(self, node: ast.AST) -> ast.AST | None:
        above = self._parent[self.number[node]]
        return self.all[above] if above >= 0 else None

    def scope(self, node: ast.AST) -> FunctionNode | ast.Lambda | None:
        """The innermost function or lambda whose body holds `node`."""
        number = self._scope[self.number[node]]
        return self.all[number] if number >= 0 else None  # type: ignore[return-value]

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class whose body holds `node`, through functions."""
        number = self._class[self.number[node]]
        return self.all[number] if number >= 0 else None  # type: ignore[return-value]

    def cell(self, node: ast.AST) -> Cell:
        return self._cells[bisect_right(self._starts, self.number[node]) - 1]


def _children(node: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    kind = node.__class__
    fields = _HOLDING.get(kind)
    if fields is None:
        fields = _HOLDING[kind] = tuple(field for field in kind._fields if field not in _PLAIN_FIELDS)
    for field in fields:
        value = getattr(node, field, None)
        if isinstance(value, list):
            found.extend(item for item in value if isinstance(item, ast.AST))
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def parameters(function: FunctionNode | ast.Lambda) -> list[str]:
    """The names of all parameters, in order."""
    given = function.args
    return [item.arg for item in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def default_of(function: FunctionNode | ast.Lambda, name: str) -> ast.expr | None:
    """The default of one parameter."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    for item, default in zip(reversed(plain), reversed(given.defaults), strict=False):
        if item.arg == name:
            return default
    for item, keyword in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if item.arg == name:
            return keyword
    return None


def arguments(call: ast.Call) -> list[ast.expr]:
    """All that a call is given, by place and by name."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def names_in(*nodes: ast.AST) -> set[str]:
    """The plain names in them: of a target, the variables that an assignment or a loop sets."""
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def is_none(node: ast.AST | None) -> bool:
    """Is this the constant None, written out?"""
    return isinstance(node, ast.Constant) and node.value is None


def targets_of(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    """What an assignment sets, tuples whole."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def flat(target: ast.expr) -> list[ast.expr]:
    """The single targets in `a, (b, c) = …`."""
    return [part for item in target.elts for part in flat(item)] if isinstance(target, ast.Tuple | ast.List) else [target]


class Remembering(Protocol):
    """What answers are kept with: a program."""

    memory: dict[Any, dict[Any, Any]]


S = TypeVar("S", bound=Remembering)


def remembered(work_out: Callable[Concatenate[S, P], A]) -> Callable[Concatenate[S, P], A]:
    """The function or method, with each answer kept in the memory of the program that is asked about."""

    @wraps(work_out)
    def answer(program: S, /, *given: P.args, **named: P.kwargs) -> A:
        answers = program.memory.get(work_out)
        if answers is None:
            answers = program.memory[work_out] = {}
        key = (*given, *named.values()) if named else given
        if key not in answers:
            answers[key] = work_out(program, *given, **named)
        return answers[key]  # type: ignore[no-any-return]

    return answer


class Answers(Generic[A]):
    """What is being worked out already, or lies too deep, has the answer `open`."""

    def __init__(self, open_: A, deepest: int) -> None:
        self._open = open_
        self._deepest = deepest
        self._known: dict[ast.AST, A] = {}
        self._passing: dict[ast.AST, tuple[A, int]] = {}
        self._asked: dict[ast.AST, int] = {}  # what is being worked out, with its depth
        self._lowest = 0  # the least depth that the answers of now rest on

    def of(self, node: ast.AST, work_out: Callable[[ast.AST], A]) -> A:
        if node in self._known:
            return self._known[node]
        if node in self._passing:
            found, lowest = self._passing[node]
            self._lowest = min(self._lowest, lowest)
            return found
        if node in self._asked or len(self._asked) > self._deepest:
            self._lowest = min(self._lowest, self._asked.get(node, 0))
            return self._open
        return self._worked_out(node, work_out)

    def _worked_out(self, node: ast.AST, work_out: Callable[[ast.AST], A]) -> A:
        """Kept for good, unless it rests on an answer further up that is still being worked out: then until that is done."""
        depth, outside, passing = len(self._asked), self._lowest, len(self._passing)
        self._asked[node], self._lowest = depth, depth
        try:
            found = work_out(node)
        finally:
            del self._asked[node]
        if self._lowest >= depth:
            for other in list(self._passing)[passing:]:
                del self._passing[other]
            self._known[node] = found
            self._lowest = outside
        else:
            self._passing[node] = (found, self._lowest)
            self._lowest = min(self._lowest, outside)
        return found
