"""Every binding of every name, built once, and which of them can be in force at a place: branches joined.

In comes an index, out go `Binding` records of `x`, `self.x`, `CFG.x` and `cfg["x"]`: assignments, loops, `with … as`, parameters,
`+=`, definitions. `reaching` follows `if`, `try`, `match`, loops and early returns, so that a name given in two branches has two
bindings afterwards. What the expressions mean is for the layers above.
"""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from unchoke.code.node_index import Index, LoopNode

NO_VALUE: Final = ast.Constant(value=...)  # stands nowhere in the source
How = Literal["given", "looped", "added", "handed", "made"]
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.ExceptHandler)
_ASSIGNING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.withitem, ast.For, ast.AsyncFor, ast.comprehension)


@dataclass(frozen=True, eq=False)
class Binding:
    """`node` gives the name `value`: itself, one round of it (`looped`), or added to what it was (`added`).

    `position` is the place in a tuple that `value` turns out to be. What is `handed` to a function or `made` by a `def`, a
    `class` or an import has `NO_VALUE`.
    """

    order: int
    scope: ast.AST | None
    owner: ast.ClassDef | None
    node: ast.AST
    value: ast.expr
    how: How
    position: int | None = None


State = frozenset[Binding] | None  # None: this place is never reached


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


class Bindings:
    """Every binding by written name and scope, in file order."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._by_name: dict[str, list[Binding]] = {}
        self._by_scope: dict[tuple[str, ast.AST | None], list[Binding]] = {}
        self._anywhere: dict[tuple[str, ast.AST | None], list[Binding]] = {}  # by functions that say `global`
        self._ends: dict[tuple[str, ast.AST | None], frozenset[Binding]] = {}
        self._starts: dict[int, list[int]] = {}
        self._modules = index.listed((ast.Module,))
        self._cell_starts = index.numbers((ast.Module,))
        stated = index.listed((ast.Global, ast.Nonlocal))
        outside = {(index.scope(node), name) for node in stated for name in node.names}  # type: ignore[attr-defined]
        for number in index.numbers((*_ASSIGNING, *_DEFINITIONS, ast.arg)):
            node = index.all[number]
            scope, owner = self._scope(node), index.owner(node)
            for name, value, how, position in _bound(node):
                found = Binding(number, scope, owner, node, value, how, position)
                self._by_name.setdefault(name, []).append(found)
                self._by_scope.setdefault((name, owner if name.startswith("self.") else scope), []).append(found)
                if (scope, name) in outside:
                    self._anywhere.setdefault((name, None), []).append(found)

    def _scope(self, node: ast.AST) -> ast.AST | None:
        """The function, lambda or class body that a name bound here belongs to."""
        scope, owner = self._index.scope(node), self._index.owner(node)
        if owner is not None and (scope is None or self._index.number[owner] > self._index.number[scope]):
            return owner
        return scope

    def all(self, name: str) -> list[Binding]:
        """The assignments of a name in all scopes."""
        return [item for item in self._by_name.get(name, ()) if item.how == "given"]

    def within(self, name: str, scope: ast.AST | None) -> list[Binding]:
        """All that binds a name in one scope, loops and sums too."""
        return self._by_scope.get((name, scope), [])

    def seen_from(self, name: str, at: ast.AST) -> list[Binding]:
        """The assignments that the code at `at` can mean: of its own function first, then outwards; `self.x` of its class."""
        found = self._by_scope.get((name, self._home(name, at)), [])
        return [item for item in found if item.how == "given"]

    def _home(self, name: str, at: ast.AST) -> ast.AST | None:
        """The scope whose variable a name is at this place."""
        if name.startswith("self."):
            return self._index.owner(at)
        scope: ast.AST | None = self._scope(at)
        while scope is not None and (name, scope) not in self._by_scope:
            scope = self._index.scope(scope)
        return scope

    # What is in force at a place

    def reaching(self, name: str, at: ast.AST) -> list[Binding]:
        """The bindings of a name that can be in force at `at`, in order; those of a comprehension round it come first of all."""
        inner = self._by_comprehension(name, at)
        if inner is not None:
            return [inner]
        if name.startswith("self."):
            found = self._of_object(name, at)
        else:
            home = self._home(name, at)
            own = self._by_scope.get((name, home), [])
            if len(own) == 1:
                found = frozenset(own)
            elif own and self._runs_in(home, at):
                found = self._walk(own, home, self._index.number[at]) or frozenset(own[-1:])
            else:
                found = self._at_end(name, home)
            found = found.union(self._anywhere.get((name, home), ()))
        return sorted(found, key=lambda item: item.order)

    def _runs_in(self, home: ast.AST | None, at: ast.AST) -> bool:
        """Is `at` run in its place among the statements of `home`, and not later as a function?"""
        scope: ast.AST | None = self._scope(at)
        while isinstance(scope, ast.Lambda | ast.ClassDef) and scope is not home:
            scope = self._index.scope(scope)
        return scope is home

    def _by_comprehension(self, name: str, at: ast.AST) -> Binding | None:
        above = self._index.parent(at)
        while above is not None and not isinstance(above, ast.stmt):
            for generator in getattr(above, "generators", ()):
                if not self._index.holds(generator.iter, at):
                    own = [item for item in self._by_name.get(name, ()) if item.node is generator]
                    if own:
                        return own[0]
            above = self._index.parent(above)
        return None

    def _at_end(self, name: str, scope: ast.AST | None) -> frozenset[Binding]:
        if (name, scope) not in self._ends:
            own = self._by_scope.get((name, scope), [])
            self._ends[name, scope] = self._walk(own, scope, None) if own else frozenset()
        return self._ends[name, scope]

    def _of_object(self, name: str, at: ast.AST) -> frozenset[Binding]:
        """An attribute of `self`: what its own function gave it before, else what any method leaves in it."""
        own = self._by_scope.get((name, self._index.owner(at)), [])
        scope = self._index.scope(at)
        ends: frozenset[Binding] = frozenset()
        for function in dict.fromkeys(item.scope for item in own):
            if function is not scope:
                ends |= self._walk([item for item in own if item.scope is function], function, None)
        here = [item for item in own if item.scope is scope]
        return self._walk(here, scope, self._index.number[at], ends) if here else ends

    def _walk(
        self, own: list[Binding], scope: ast.AST | None, place: int | None, start: frozenset[Binding] = frozenset()
    ) -> frozenset[Binding]:
        state: State = start.union(item for item in own if item.how == "handed")
        own = self._in_question([item for item in own if item.how != "handed"], place)
        walk = _Walk(self._index, own, self._starts, place)
        blocks = [scope.body] if isinstance(getattr(scope, "body", None), list) else []  # type: ignore[union-attr]
        if scope is None:
            blocks = [module.body for module in self._touched(own, place)]  # type: ignore[attr-defined]
        try:
            for block in blocks:
                state = walk.block(block, state)
        except _Arrived as arrived:
            return arrived.state or frozenset()
        return (state or frozenset()).union(*walk.returned)

    def _touched(self, own: list[Binding], place: int | None) -> list[ast.AST]:
        """The cells in which something of this is."""
        numbers = [item.order for item in own] + ([place] if place is not None else [])
        return [self._modules[cell] for cell in sorted({bisect_right(self._cell_starts, number) - 1 for number in numbers})]

    def _in_question(self, own: list[Binding], place: int | None) -> list[Binding]:
        """Those after the last one that always runs: it stands in the outermost block and ends before the place."""
        index = self._index
        first = 0
        for position, item in enumerate(own):
            if place is not None and index.stop(item.node) >= place:
                break
            parent = index.parent(item.node)
            always = isinstance(parent, ast.Module) or parent is item.scope
            first = position if always and item.how == "given" else first
        return own[first:]


class _Arrived(Exception):  # noqa: N818 (no error: the place that was looked for)
    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state


class _Walk:
    """One name's bindings carried through statements in the order they run, up to `place` or to the end."""

    def __init__(self, index: Index, own: list[Binding], starts: dict[int, list[int]], place: int | None) -> None:
        self._index = index
        self._own = own
        self._orders = [item.order for item in own]
        self._starts = starts
        self._place = place
        self._exits = index.numbers((ast.Break, ast.Continue)) if own else []
        self._escaped: list[State] = []  # from there to the end of their loop
        self._depth = 0  # of loops
        self.returned: list[frozenset[Binding]] = []

    def block(self, statements: Sequence[ast.stmt], state: State) -> State:
        """What is in force after the statements; where the place is among them, that is raised as `_Arrived`."""
        if not statements:
            return state
        for statement in self._touched(statements):
            before = state
            state = self._after(statement, state)
            if self._place is not None and self._place <= self._index.stop(statement):
                raise _Arrived(before)  # in the head of a loop or a function
        if isinstance(statements[-1], ast.Return | ast.Raise):
            self.returned.append(state or frozenset())
            return None
        if isinstance(statements[-1], ast.Break | ast.Continue):
            self._escaped.append(state)
            return None
        return state

    def _touched(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements that hold a binding or the place."""
        starts = self._starts.get(id(statements))
        if starts is None:
            starts = self._starts[id(statements)] = [self._index.number[item] for item in statements]
        first, last = starts[0], self._index.stop(statements[-1])
        numbers = self._orders[bisect_left(self._orders, first) : bisect_right(self._orders, last)]
        if self._depth:
            numbers = [*numbers, *self._exits[bisect_left(self._exits, first) : bisect_right(self._exits, last)]]
        if self._place is not None and first <= self._place <= last:
            numbers = [*numbers, self._place]
        return [statements[at] for at in sorted({bisect_right(starts, number) - 1 for number in numbers})]

    def _bound_in(self, node: ast.AST) -> list[Binding]:
        first, last = self._index.number[node], self._index.stop(node)
        return self._own[bisect_left(self._orders, first) : bisect_right(self._orders, last)]

    def _plain(self, node: ast.AST, state: State) -> State:
        """All bindings under a node without branches, one after the other; up to the place, without the one it stands in."""
        place = self._place if self._holds_place([node]) else None
        for item in self._bound_in(node):
            if place is None or self._index.stop(item.node) < place:
                state = _joined(state, frozenset([item])) if item.how == "added" else frozenset([item])
        if place is not None:
            raise _Arrived(state)
        return state

    def _holds_place(self, block: Sequence[ast.AST]) -> bool:
        return (
            self._place is not None
            and bool(block)
            and (self._index.number[block[0]] <= self._place <= self._index.stop(block[-1]))
        )

    def _after(self, node: ast.AST, state: State) -> State:
        if isinstance(node, ast.If):
            state = self._plain(node.test, state)
            dead = (node.orelse if node.test.value else node.body) if isinstance(node.test, ast.Constant) else None
            blocks = [block for block in (node.body, node.orelse) if block is not dead or self._holds_place(block)]
            return _joined(*(self.block(block, state) for block in blocks))
        if isinstance(node, LoopNode):
            return self.block(node.orelse, self._after_loop(node, state))
        if isinstance(node, ast.Try | ast.TryStar):
            return self._after_try(node, state)
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                state = self._plain(item, state)
            return self.block(node.body, state)
        if isinstance(node, ast.Match):
            ends, last = [self.block(case.body, state) for case in node.cases], node.cases[-1]
            always = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
            return _joined(*ends) if always else _joined(state, *ends)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own = [item for item in self._own if item.node is node]
            return frozenset(own) if own else state
        return self._plain(node, state)

    def _after_loop(self, node: LoopNode, state: State) -> State:
        """A round begins with what came before the loop, or with what an earlier round left."""
        endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        head = frozenset(item for item in self._own if item.node is node)
        if self._holds_place([node]) and not self._holds_place(node.body) and not self._holds_place(node.orelse):
            raise _Arrived(state)
        place, self._place = self._place, None
        tested = self._plain(node.test, state) if isinstance(node, ast.While) else state
        begun = head or _joined(tested, self._body(node, tested))
        self._place = place
        return _joined(None if endless else state, self._body(node, begun))

    def _body(self, node: LoopNode, state: State) -> State:
        """What one round leaves behind, however it ends."""
        escaped, self._escaped = self._escaped, []
        self._depth += 1
        end = self.block(node.body, state)
        self._depth -= 1
        end = _joined(end, *self._escaped)
        self._escaped = escaped
        return end

    def _after_try(self, node: ast.Try | ast.TryStar, state: State) -> State:
        """Any part of the body may have run when it failed."""
        broken = _joined(state, frozenset(item for statement in node.body for item in self._bound_in(statement)))
        ends = [self.block(node.orelse, self.block(node.body, state))]
        for handler in node.handlers:
            caught = frozenset(item for item in self._own if item.node is handler)
            ends.append(self.block(handler.body, caught or broken))
        return self.block(node.finalbody, _joined(*ends))


def _joined(*states: State) -> State:
    known = [state for state in states if state is not None]
    return frozenset().union(*known) if known else None


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr, How, int | None]]:
    """Name, value, how and position of everything that one node binds."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value, "given")
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        if node.value is not None:
            yield from _unpacked(node.target, node.value, "given")
    elif isinstance(node, ast.AugAssign):
        yield from _unpacked(node.target, node.value, "added")
    elif isinstance(node, ast.withitem):
        if node.optional_vars is not None:
            yield from _unpacked(node.optional_vars, node.context_expr, "given")
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from _unpacked(node.target, node.iter, "looped")
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield (alias.asname or alias.name).partition(".")[0], NO_VALUE, "made", None
    elif isinstance(node, ast.arg):
        yield node.arg, NO_VALUE, "handed", None
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
        yield node.name, NO_VALUE, "made", None


def _unpacked(target: ast.expr, value: ast.expr, how: How) -> Iterator[tuple[str, ast.expr, How, int | None]]:
    """Each name in a target, with the part it gets where both sides have parts."""
    if isinstance(target, ast.Starred):
        target = target.value
    if not isinstance(target, ast.Tuple | ast.List):
        name = written(target)
        if name:
            yield name, value, how, None
        return
    if how == "given" and isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
        for inner, part in zip(target.elts, value.elts, strict=True):
            yield from _unpacked(inner, part, how)
        return
    for position, inner in enumerate(target.elts):
        yield from ((name, part, how, position) for name, part, _, _ in _unpacked(inner, value, how))
