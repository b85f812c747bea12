"""Where a value comes from, and does it change from sample to sample?

In comes an expression, out go its grounds: the parameters, loops and random draws it rests on, through variables and calls in the
file. Every assignment of a name counts, whichever runs; what cannot be told is taken to change, so that rules stay silent. With
it go the small steps of such a search: the root of a chain, the last assignment before a place, what was added to a list; and
which calls run the author's own code that was not read: who says that something is never done asks this of what could do it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from unchoke.code.bindings import NO_VALUE
from unchoke.code.facts.per_sample import SampleFunction, is_random_number
from unchoke.code.facts.vocabulary import role_of
from unchoke.code.node_index import FunctionNode, LoopNode, arguments, names_in, parameters, remembered
from unchoke.code.program import Program
from unchoke.code.unread import ANY_NAME

Scope = FunctionNode | ast.Lambda | None
_OWN = ("self", "cls")
_MOST = 40  # assignments behind one expression
_DEEPEST_NAME = 3  # names that names were made of


@dataclass(frozen=True)
class Ground:
    """A parameter of a function (`node` is the function), a loop over something, a random draw, a counter kept on `self`."""

    kind: Literal["parameter", "loop", "random", "counter"]
    node: ast.AST
    name: str = ""


def grounds(program: Program, node: ast.AST, *, without: frozenset[str] = frozenset(), everywhere: bool = False) -> set[Ground]:
    """All that the value of `node` rests on. Names in `without` are not followed, variables of the file only if `everywhere`."""
    walk = _BackwardWalk(program, without, at_module=everywhere or program.enclosing_scope(node) is None)
    walk.expression(node)
    return walk.found


def is_of_sample(program: Program, node: ast.AST, *, without: frozenset[str] = frozenset(), random: bool = True) -> bool:
    """Does this expression change from one sample to the next? With `random=False` a random draw alone does not count."""
    return any(_changes(program, ground, random=random) for ground in grounds(program, node, without=without))


def is_random(program: Program, node: ast.AST) -> bool:
    """Does it rest on a random draw?"""
    return any(ground.kind == "random" for ground in grounds(program, node))


def runs_for_each_sample(program: Program, node: ast.AST) -> SampleFunction | None:
    """The record of the per-sample code that runs `node` for every sample: not before a generator's loop, not in an `except`."""
    record = program.facts.in_per_sample(node)
    if record is None or any(isinstance(above, ast.ExceptHandler) for above in _within_function(program, node)):
        return None
    return record if _each_round(program, node, set()) else None


@remembered
def _counters(program: Program) -> set[tuple[ast.ClassDef | None, str]]:
    """`self.position` of a class that says `self.position += 1` for each sample."""
    counted = (item for item in program.nodes(ast.AugAssign) if program.written(item.target).startswith("self."))
    inside = (item for item in counted if program.facts.in_per_sample(item) is not None)
    return {(program.enclosing_class(item), program.written(item.target)) for item in inside}


class _BackwardWalk:
    """One search backwards; each name of each scope is visited once."""

    def __init__(self, program: Program, without: frozenset[str], *, at_module: bool) -> None:
        self.found: set[Ground] = set()
        self._program = program
        self._without = without
        self._at_module = at_module
        self._seen: set[tuple[ast.AST | None, str]] = set()

    def expression(self, node: ast.AST) -> None:
        program = self._program
        for call in program.within(node, ast.Call):
            if is_random_number(program, call) or program.method(call) == "get_params":
                self.found.add(Ground("random", call))
        for part in program.within(node, ast.Name):
            parent = program.parent(part)
            called = isinstance(parent, ast.Call) and parent.func is part
            if part.id not in self._without and not called and part.id not in _OWN:
                self._name(part)
        for attribute in program.within(node, ast.Attribute):
            if (program.enclosing_class(attribute), program.written(attribute)) in _counters(program):
                self.found.add(Ground("counter", attribute))

    def _name(self, node: ast.Name) -> None:
        scope: Scope = self._program.enclosing_scope(node)
        while True:
            if (scope, node.id) in self._seen:
                return
            given = [item for item in self._program.bindings.within(node.id, scope) if item.value is not NO_VALUE]
            is_parameter = scope is not None and node.id in parameters(scope) and node.id not in _OWN
            if given or is_parameter:
                break
            if scope is None:
                return
            scope = self._program.index.scope(scope)
        self._seen.add((scope, node.id))
        if scope is None and not self._at_module:
            return  # made once, when the file runs
        if is_parameter and scope is not None:
            self._parameter(scope, node.id)
        for item in given:
            if item.how == "looped":
                self.found.add(Ground("loop", item.node, node.id))
            self.expression(item.value)

    def _parameter(self, function: FunctionNode | ast.Lambda, name: str) -> None:
        self.found.add(Ground("parameter", function, name))
        if isinstance(function, ast.Lambda):
            return
        for call in self._program.callers(function):
            given = self._program.argument_for(call, function, name)
            if given is not None and (self._at_module or self._program.enclosing_scope(given) is not None):
                self.expression(given)


def _changes(program: Program, ground: Ground, *, random: bool) -> bool:
    if ground.kind == "loop":
        return _yields_in(program, ground.node)
    return _is_given_samples(program, ground.node) if ground.kind == "parameter" else random or ground.kind == "counter"


def _record_of(program: Program, function: ast.AST) -> SampleFunction | None:
    return next((record for record in program.facts.per_sample if record.function is function), None)


def _is_given_samples(program: Program, function: ast.AST) -> bool:
    """Is this function's parameter the sample itself, or something that cannot be told?"""
    record = _record_of(program, function)
    if isinstance(function, ast.Lambda):
        return record is not None and record.kind != "generator"
    if not isinstance(function, FunctionNode) or (record is not None and record.kind in ("getitem", "generator")):
        return record is not None and record.kind == "getitem"
    inside = [call for call in program.callers(function) if program.facts.in_per_sample(call) is not None]
    return not inside and (record is not None or not program.callers(function)) and function.name != "__init__"


def _yields_in(program: Program, loop: ast.AST) -> bool:
    """Does each round of this loop yield a sample or a batch?"""
    if not isinstance(loop, ast.For | ast.AsyncFor):
        return False
    scope = program.index.scope(loop)
    return any(program.index.scope(node) is scope for node in program.within(loop, ast.Yield, ast.YieldFrom))


def _within_function(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    for above in program.ancestors(node):
        if isinstance(above, FunctionNode):
            return
        yield above


def _each_round(program: Program, node: ast.AST, seen: set[ast.AST]) -> bool:
    function = program.enclosing_function(node)
    if function is None or function in seen:
        return function is None
    seen.add(function)
    if _record_of(program, function) is not None:
        return _in_yielding_loop(program, function, node)
    calls = [call for call in program.callers(function) if program.facts.in_per_sample(call) is not None]
    return not calls or any(_each_round(program, call, seen) for call in calls)


def _in_yielding_loop(program: Program, function: FunctionNode, node: ast.AST) -> bool:
    """In a generator: within the innermost loop round a `yield`. Elsewhere: always, but for an `__iter__` that only hands on."""
    yields = [item for item in program.within(function, ast.Yield, ast.YieldFrom) if program.index.scope(item) is function]
    if not yields:
        return function.name != "__iter__"
    loops = [program.loops_around(item) for item in yields]
    number = program.index.number[node]
    return any(not around or program.in_body(around[0], number) for around in loops)


def root(node: ast.AST | None) -> str:
    """The variable a chain begins with: `history` in `history["loss"].append`; `self.x` stays whole."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return f"self.{node.attr}"
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def sources(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    """Every node of an expression and, through the variables in it, of what they were given in the same function; each once."""
    seen: set[ast.AST] = {node}
    left = [node]
    while left and len(seen) < _MOST:
        for part in program.within(left.pop(), ast.AST):
            yield part
            given = program.given_before(part) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) else None
            if given is not None and given.value not in seen and not program.index.holds(given.value, node):
                seen.add(given.value)
                left.append(given.value)


def loop_names(loop: LoopNode | ast.comprehension) -> set[str]:
    """The variables that a loop sets."""
    if isinstance(loop, ast.While):
        return set()
    return names_in(loop.target)


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


def may_save(program: Program, call: ast.Call) -> bool:
    """Unseen code that is handed a network, and whose name does not say that it only trains or evaluates it."""
    if not program.unread or role_of(program.method(call)) in ("train", "eval") or not is_unseen(program, call):
        return False
    networks = {program.written(other.func) for other in program.facts.forwards} - {""}
    return any(program.facts.is_network(item) or program.written(item) in networks for item in arguments(call))


def hides_code(program: Program) -> bool:
    """Is there code that was not read and may do anything: a star import, `%run`, or a cell that does not parse?"""
    return any(ANY_NAME in piece.names for piece in program.unread)


def is_unseen(program: Program, call: ast.Call) -> bool:
    """Does this call run code that belongs to the program and was not read?"""
    if not program.unread or program.function_of(call) is not None:
        return False
    at: ast.AST = call.func
    while isinstance(at, ast.Attribute | ast.Subscript | ast.Call):
        at = at.func if isinstance(at, ast.Call) else at.value
    return isinstance(at, ast.Name) and _is_from_unread(program, at, 0)


def _is_from_unread(program: Program, name: ast.Name, depth: int) -> bool:
    """Was it imported from there, or made of what was, or does nothing that was read say what it is?"""
    dotted = program.name(name)
    if any(piece.name and (dotted == piece.name or dotted.startswith(f"{piece.name}.")) for piece in program.unread):
        return True
    if "." in dotted or name.id in program.functions or name.id in program.classes or hasattr(builtins, name.id):
        return False
    function = program.enclosing_function(name)
    if function is not None and name.id in parameters(function):
        return False
    loops = [loop for loop in program.loops_around(name) if isinstance(loop, ast.For | ast.AsyncFor)]
    values = [*program.assigned(name.id, name), *(loop.iter for loop in loops if name.id in names_in(loop.target))]
    if not values:
        return hides_code(program)
    inner = (part for value in values for part in program.within(value, ast.Name))
    return depth < _DEEPEST_NAME and any(part.id != name.id and _is_from_unread(program, part, depth + 1) for part in inner)
